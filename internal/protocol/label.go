package protocol

const (
	// MaxLabelBytes bounds the name of a label.
	MaxLabelBytes = 64
	// OtherLabel is the name of all labels together that are not shown by name.
	OtherLabel = "other"
)

// ValidateLabel checks the name of a label: 1 to 64 bytes of valid UTF-8 without control
// characters.
func ValidateLabel(name string) error {
	return validateName("label", name, MaxLabelBytes, "reindex")
}
