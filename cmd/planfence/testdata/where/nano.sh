printf 'alpha\n' > f
## act
python3 "$BASE/scripts/screen.py" 'nano f' alpha 'beta ' 'beta alpha' '\x0f\r' 'Wrote' '\x18'
grep -qx 'beta alpha' f
