module github.com/idem-go/idem/codec/jsonv2

go 1.26.0

toolchain go1.26.8

replace github.com/idem-go/idem => ../..

require (
	github.com/go-json-experiment/json v1.27.2
	github.com/idem-go/idem v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
