printf 'alpha\n' > f
## act
perl -pi -e 's/alpha/beta/' f
perl -pi.orig -e 's/beta/gamma/' f
grep -qx gamma f
