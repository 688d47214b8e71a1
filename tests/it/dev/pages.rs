//! The pages about errors, in a real browser.

use super::stand::{Dev, site};
use crate::support::prelude::*;

const PHONE: u32 = 360;
const BROWSER: &str = "/usr/bin/chromium";
const DARK: &str = "--blink-settings=preferredColorScheme=0";

const MODULE: &str = "\"\"\"What things cost: <b>no markup</b>.\"\"\"

prices = {
    'apples': 3,
}

average_of_all_prices_that_are_known_to_this_module = sum(prices.values()) / len(price) # <script>alert(1)</script>
";

fn browse(dir: &Path, page: &Path, options: &[&str]) -> String {
    let output = Command::new(BROWSER)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium");
    assert_success(&output);
    text_of(&output.stdout)
}

fn looked_at(dir: &Path, page: &str, options: &[&str]) -> (String, Vec<u8>) {
    let text = Value::from(page).to_string().replace('<', "\\u003c");
    let frames = format!(
        "<!DOCTYPE html><style>body {{ margin: 0 }} iframe {{ border: 0; display: block }}</style>\
         <iframe id=\"desk\" style=\"width: 1100px; height: 1600px\"></iframe>\
         <iframe id=\"frame\" style=\"width: {PHONE}px; height: 800px\"></iframe><p id=\"said\"></p>\
         <script>frame.onload = () => {{ const page = frame.contentDocument; \
         said.textContent = 'measured ' + page.documentElement.scrollWidth + ' ' + page.querySelectorAll('.here').length + ' ' \
         + getComputedStyle(page.body).backgroundColor + ' measured'; }}; frame.srcdoc = desk.srcdoc = {text};</script>"
    );
    let (file, picture) = (dir.join("frames.html"), dir.join("desk.png"));
    fs::write(&file, frames).expect("frames");
    let place = format!("--screenshot={}", picture.display());
    let own = ["--dump-dom", "--window-size=1100,1600", place.as_str()];
    let dom = browse(dir, &file, &[&own, options].concat());
    let said = dom
        .split("measured ")
        .nth(1)
        .and_then(|rest| rest.split(" measured").next());
    let said = said.unwrap_or_else(|| panic!("nothing was measured: {dom}"));
    let bytes = fs::read(&picture).expect("a picture");
    fs::remove_file(picture).expect("a picture");
    assert!(
        bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000,
        "{} bytes",
        bytes.len()
    );
    (said.to_owned(), bytes)
}

fn assert_valid(page: &str, dir: &Path) {
    let file = dir.join("valid.html");
    fs::write(&file, page).expect("page");
    let script = "import html5lib, sys; html5lib.HTMLParser(strict=True).parse(open(sys.argv[1], encoding='utf-8').read())";
    let output = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .arg(&file)
        .output();
    let output = output.expect("python3");
    assert_success(&output);
}

fn look_at(page: &str) {
    let dir = directory();
    let dir = dir.path();
    assert_valid(page, dir);
    let (light, light_picture) = looked_at(dir, page, &[]);
    let (dark, dark_picture) = looked_at(dir, page, &[DARK]);
    for said in [&light, &dark] {
        let mut words = said.split(' ');
        let width: u32 = words
            .next()
            .and_then(|width| width.parse().ok())
            .expect("a width");
        assert!(width <= PHONE, "the page is {width} px wide on a phone");
        assert_eq!(words.next(), Some("1"), "one line is marked: {said}");
    }
    assert_ne!(light, dark, "the dark page looks like the light one");
    assert_ne!(light_picture, dark_picture);
}

#[test]
fn the_page_about_a_failed_start_is_readable_everywhere() {
    skip_if!(needs_file(BROWSER));
    let files = [("wsgi.py", "import prices\n"), ("prices.py", MODULE)];
    let (_dir, root) = site(&files);
    let dev = Dev::start(&root);
    let page = dev.get("/");
    assert_eq!(page.status, 503);
    for part in [
        "NameError",
        "What to do",
        "prices.py, line 7",
        "Load the application",
        "not begun",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let place = |text: &str| page.body.find(text).expect("a part of the page");
    assert!(place("What to do") < place("Your code") && place("Your code") < place("How far it came"));
    assert_lacks(&page.body, "<script>");
    assert_lacks(&page.body, "SUBPROCESS_LISTEN");
    look_at(&page.body);
}

#[test]
fn the_page_about_a_program_shows_its_code() {
    skip_if!(needs_file(BROWSER));
    let (_dir, root) = site(&[("app.js", "const a = 1;\nconst b = missing_function(a);\n")]);
    let dev = Dev::start(&root);
    let page = dev.get("/");
    assert_eq!(page.status, 503);
    assert_contains(&page.body, "app.js, line 2");
    assert_contains(&page.body, "missing_function");
    look_at(&page.body);
}

#[test]
fn the_page_about_an_exception_is_readable_everywhere() {
    skip_if!(needs_file(BROWSER));
    let code = format!(
        "def application(environ, start_response):\n    raise ValueError('<b>{}</b>')\n",
        "x".repeat(200)
    );
    let (_dir, root) = site(&[("wsgi.py", &code)]);
    let dev = Dev::start(&root);
    let page = dev.get("/");
    assert_eq!(page.status, 500);
    assert_contains(&page.body, "wsgi.py, line 2");
    assert_lacks(&page.body, "<b>x");
    look_at(&page.body);
}
