// Package webguard stands between the network and a small page for operators:
// it refuses what a browser can be tricked into, asks who is there, and bounds
// what a stranger can send. What is behind it sees only requests that passed,
// each with an identity.
//
// What it refuses, in this order: paths that are not spelled plainly, methods
// other than GET, HEAD and POST, host names that the page is not known by (DNS
// rebinding), requests that another site made, writes that do not say where they
// come from, bodies that are too large or no JSON, and who is not known.
//
// The page itself and its assets are public: they hold nothing but the program.
package webguard
