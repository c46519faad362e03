mkdir -p dep/package
printf '{"name":"dep","version":"1.0.0","main":"i.js","bin":{"dep-run":"i.js"}}' > dep/package/package.json
printf '#!/usr/bin/env node\nmodule.exports = 6 * 7\n' > dep/package/i.js
tar -C dep -czf dep.tgz package && rm -r dep
printf '{"name":"app","version":"1.0.0","scripts":{"test":"node -e \\"require(\\\\\\"fs\\\\\\").writeFileSync(\\\\\\"result\\\\\\", String(require(\\\\\\"dep\\\\\\")))\\""}}' > package.json
## act
npm install --offline --no-audit --no-fund --silent ./dep.tgz
test -x node_modules/.bin/dep-run
npm test --silent
grep -qx 42 result
