// Package opsstyle has the style sheet of the ops page, which the command's pages for signing in
// and out share.
package opsstyle

import _ "embed"

// CSS is the style sheet.
//
//go:embed style.css
var CSS string
