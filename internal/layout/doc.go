// Package layout holds no code: its tests keep the architecture of the module
// as ARCHITECTURE.md draws it. They fail the build when a package imports
// upwards, when a vendor's library is used outside its one package, when a module's
// go.mod does not name all that it needs, or when a package does not say what it is
// for.
package layout
