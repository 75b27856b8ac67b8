module github.com/idem-go/idem/codec/cloudevents

go 1.26.0

toolchain go1.26.8

replace github.com/idem-go/idem => ../..

require (
	github.com/bufbuild/protocompile v0.14.1
	github.com/cloudevents/sdk-go/v2 v2.16.2
	github.com/idem-go/idem v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	go.uber.org/zap v1.27.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
