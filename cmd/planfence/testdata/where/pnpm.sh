mkdir -p ~/.local/share/pnpm/store/v3/files/00
echo 'module.exports = 1' > ~/.local/share/pnpm/store/v3/files/00/$(basename "$(dirname "$PWD")")
## act
# A store of hard links: new files come into the store first, then a link of each,
# old or new, into the project; a package is put together aside and renamed.
store=~/.local/share/pnpm/store/v3/files
new=$store/01/$$-$RANDOM
mkdir -p $store/01
echo 'module.exports = 2' > $new.tmp && mv $new.tmp $new
mkdir -p node_modules/.pnpm/dep_tmp_$$
ln "$store/00/$(basename "$(dirname "$PWD")")" node_modules/.pnpm/dep_tmp_$$/old.js
ln $new node_modules/.pnpm/dep_tmp_$$/new.js
chmod 755 node_modules/.pnpm/dep_tmp_$$/new.js
mv node_modules/.pnpm/dep_tmp_$$ node_modules/.pnpm/dep
ln -s .pnpm/dep node_modules/dep
grep -q 'exports = 2' node_modules/dep/new.js
