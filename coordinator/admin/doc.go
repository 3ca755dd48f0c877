// Package admin is what an operator of Quotient does by a program: a Client sets providers' policies,
// keeps their history, and reads their fleets. The command quota-admin does all of it by this package.
// A process that keeps to a policy needs package coordinator instead.
package admin
