//! The binary: argv decides the personality, everything else is the library.

fn main() {}
