package httpidem

// parseKey reads the values of the header: one line, 1 to 255 printable ASCII characters when decoded.
func parseKey(values []string, syntax Syntax, uuidOnly bool) (string, error) { panic("TODO") }
