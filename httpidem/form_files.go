package httpidem

import (
	"mime/multipart"
	"net/http"
)

// removeFiles deletes the files of a form that was parsed into a copy of a request: net/http deletes
// only those of its own request. before is the form of the copy when it was passed on; its owner
// deletes its files.
func removeFiles(r *http.Request, before *multipart.Form) {
	if before == nil && r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // as net/http does
	}
}
