// Package jvm measures the limiters that Java programs use, by JMH, in a Java
// virtual machine of its own. Maven gets them from Maven Central.
package jvm
