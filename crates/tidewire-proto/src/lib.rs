//! The vocabulary that every part of Tidewire shares: pure data, no I/O, no clock, no `std`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
