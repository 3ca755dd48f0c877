package protocol

// Mix is the step and the finalizer of splitmix64 (Steele, Lea, Flood 2014), a bijection of
// 64 bits. Instances must agree on it: the ranks of shares are made of it.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}
