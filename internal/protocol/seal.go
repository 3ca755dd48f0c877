package protocol

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/quota"
)

// An incarnation's ID ends with a hash of its public key. So nobody else can sign
// for it, whoever may write its key in etcd, and whatever is written, deleted or
// restored there (self-certifying names: Mazieres and others, Separating key
// management from file system security, 1999).

// hashBytes is how much of a public key's hash an ID holds.
const hashBytes = 16

// NewID returns the ID of the incarnation that has this key: name, a dot and the
// hash.
func NewID(name string, key ed25519.PublicKey) string {
	hash := sha256.Sum256(key)
	return name + "." + base64.RawURLEncoding.EncodeToString(hash[:hashBytes])
}

// Seal signs the instance's Until with its incarnation's key.
func Seal(i *quota.Instance, key ed25519.PrivateKey) { i.Seal = sign(key, sealed(i)) }

// Sealed reports whether the incarnation itself has signed the instance's Until. Then
// it has issued nothing in windows that start at or after Until, and never will.
func Sealed(i *quota.Instance) bool {
	return !i.Until.IsZero() && signed(i.ID, i.Seal, sealed(i))
}

// sign returns the public key and the signature of a text.
func sign(key ed25519.PrivateKey, text []byte) string {
	public, _ := key.Public().(ed25519.PublicKey)
	return base64.RawURLEncoding.EncodeToString(append(slices.Clone(public), ed25519.Sign(key, text)...))
}

// signed reports whether the incarnation with that ID has signed the text.
func signed(id, by string, text []byte) bool {
	const bytes = ed25519.PublicKeySize + ed25519.SignatureSize
	if len(by) != base64.RawURLEncoding.EncodedLen(bytes) {
		return false
	}
	seal, err := base64.RawURLEncoding.DecodeString(by)
	if err != nil || len(seal) != bytes { // line breaks are skipped
		return false
	}
	public := ed25519.PublicKey(seal[:ed25519.PublicKeySize])
	dot := strings.LastIndexByte(id, '.')
	return id == NewID(id[:max(dot, 0)], public) && ed25519.Verify(public, text, seal[ed25519.PublicKeySize:])
}

// sealed is the text that is signed.
func sealed(i *quota.Instance) []byte {
	return fmt.Appendf(nil, "quotient: %q issues nothing in windows from %d on", i.ID, i.Until.UnixNano())
}
