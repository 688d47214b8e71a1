//! The preloader of PHP pools: the only program that knows libphp.

mod ffi;

fn main() {
    let _ = ffi::Php::open("8.2", None);
}
