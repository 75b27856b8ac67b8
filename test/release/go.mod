module github.com/idem-go/idem/test/release

go 1.26.8

replace github.com/idem-go/idem => ../..

require (
	github.com/google/licensecheck v0.3.1
	github.com/idem-go/idem v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/mod v0.43.0
)
