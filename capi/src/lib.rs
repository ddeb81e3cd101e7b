//! The C API of the runtime: what `graphmend.h` declares.
//!
//! The header is generated from this crate (`cbindgen.toml`); the descriptions here are its contracts, written for C. A
//! handle is a box whose pointer C holds. Nothing unwinds over the border: `status::call` is around every function.

pub mod model;
pub mod session;
pub mod status;
pub mod types;

/// The version of this library: major << 16 | minor << 8 | patch.
#[unsafe(no_mangle)]
pub extern "C" fn gm_version() -> u32 {
    const PARTS: [u32; 3] = [
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
        number(env!("CARGO_PKG_VERSION_PATCH")),
    ];
    PARTS[0] << 16 | PARTS[1] << 8 | PARTS[2]
}

/// The version as text, valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn gm_version_string() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

const fn number(digits: &str) -> u32 {
    match u32::from_str_radix(digits, 10) {
        Ok(n) => n,
        Err(_) => panic!("a version is made of numbers"),
    }
}
