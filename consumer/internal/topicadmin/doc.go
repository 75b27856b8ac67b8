// Package topicadmin describes, creates and changes topics on sarama, for package runner.
package topicadmin
