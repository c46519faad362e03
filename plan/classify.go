package plan

// firstOfClass flags the first byte of a class in the table of classes.
const firstOfClass = 0x8000

// classify puts bytes that all states treat alike into one class; '/' and the
// end of a path (byte 0) have their own. It returns class numbers from
// 1, with firstOfClass on the first byte of each, and the number of the next.
func (d *dfa) classify() (class [256]uint16, n int) {
	// A byte's column is summed up as a number of 128 bits: each edge adds its
	// own to the bytes it covers. An equal sum of different columns would be a
	// collision of a 128-bit hash.
	var sum [257][2]uint64
	for i := range d.end {
		for _, x := range d.edges[d.off[i]:d.off[i+1]] {
			a := mix(uint64(i)<<32 | uint64(uint32(x.to)))
			b := mix(a ^ 0x9E3779B97F4A7C15)
			sum[x.lo][0] += a
			sum[x.lo][1] += b
			sum[int(x.hi)+1][0] -= a
			sum[int(x.hi)+1][1] -= b
		}
	}
	known := map[[2]uint64]uint16{}
	n = 1 // class 0 is the default of a row: see pack
	var run [2]uint64
	for b := range 256 {
		run[0] += sum[b][0]
		run[1] += sum[b][1]
		c, ok := known[run]
		if own := b == 0 || b == '/'; own || !ok {
			c = uint16(n)
			n++
			class[b] = c | firstOfClass
			if !own {
				known[run] = c
			}
			continue
		}
		class[b] = c
	}
	return class, n
}

// mix spreads a number over 64 bits, one to one.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
