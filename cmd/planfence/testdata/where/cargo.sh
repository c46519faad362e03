## act
# The way cargo makes its directory: aside, marked, then renamed.
dir=$(mktemp -d ./targetXXXXXX)
printf 'Signature: 8a477f597d28d172789f06886806bc55\n' > $dir/CACHEDIR.TAG
mv -T $dir target
mkdir -p target/debug/deps target/debug/incremental/app-1abc/s-1-working
: > target/debug/.cargo-lock
flock target/debug/.cargo-lock sh -c 'echo obj > target/debug/deps/app-1abc.rcgu.o'
mv target/debug/incremental/app-1abc/s-1-working target/debug/incremental/app-1abc/s-1-done
ln target/debug/deps/app-1abc.rcgu.o target/debug/app
touch -d @1700000000 target/debug/app
echo more >> target/debug/app
