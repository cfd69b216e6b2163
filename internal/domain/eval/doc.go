// Package eval compares models on the same cases, and decides whether a candidate may replace a baseline.
package eval
