printf 'def answer(x):\n    return x * 7\n' > mod.py
cat > main.py <<'P'
import multiprocessing, mod
if __name__ == "__main__":
    lock = multiprocessing.Lock()
    shared = multiprocessing.Array("i", 2)
    with multiprocessing.Pool(2) as pool:
        out = pool.map(mod.answer, [6, 1])
    with lock, open("result", "w") as f:
        f.write(str(out))
P
## act
python3 main.py
grep -qx '\[42, 7\]' result
ls __pycache__/mod.*.pyc
