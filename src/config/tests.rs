use super::*;

#[test]
#[ignore]
fn scratch() {
    let mut out = Vec::new();
    let code = check(std::path::Path::new(&std::env::var("F").unwrap()), &mut out).unwrap();
    println!("{}exit {code}", String::from_utf8_lossy(&out));
    println!("{:#?}", load(std::path::Path::new(&std::env::var("F").unwrap())));
}
