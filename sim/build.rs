//! How the library is linked: its own calls stay its own, and its name is not the driver's.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Without this, a call from here to one of our exports would go to a preloaded library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // A preloaded library may stand in for `libcuda.so.1`; the driver behind it needs a name of its own.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsimcuda.so");
}
