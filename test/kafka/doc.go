// Package kafka runs the consumer of examples/kafka-consumer on a real Apache Kafka.
// Its tests have the build tag e2e. It is a module of its own, so that nobody else
// pays for a Kafka client.
package kafka
