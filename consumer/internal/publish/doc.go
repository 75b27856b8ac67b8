// Package publish sends messages through a sarama client and returns a result for each message.
package publish
