//! DokuWiki, from Debian's package, from its installer to the log-out.

use super::{Http, assert_quiet, http, php_location};
use crate::support::prelude::*;

const PACKAGE: &str = "/usr/share/dokuwiki";
const NOT_COPIED: &[&str] = &["local.php", "users.auth.php", "acl.auth.php", "plugins.local.php"];
const DATA: &[&str] = &[
    "attic",
    "cache",
    "index",
    "locks",
    "log",
    "media",
    "media_attic",
    "media_meta",
    "meta",
    "pages",
    "tmp",
];
const PAGE: &str = "====== Forks ======\n\nA fork in the **yard** & <nobr> ümläut.\n\n  code block\n";

/// A wiki that was never installed, with everything it writes in its own directory.
fn unpack(root: &Path) {
    assert!(
        Path::new(PACKAGE).is_dir(),
        "{PACKAGE} is missing (Debian package dokuwiki)"
    );
    let copy = Command::new("cp")
        .args(["-rL", PACKAGE])
        .arg(root)
        .output()
        .expect("cp");
    assert!(
        root.join("lib/tpl/dokuwiki/main.php").exists(),
        "{}",
        String::from_utf8_lossy(&copy.stderr)
    );
    fs::remove_file(root.join("inc/preload.php")).expect("preload.php");
    fs::create_dir(root.join("conf")).expect("conf");
    for entry in fs::read_dir("/etc/dokuwiki")
        .expect("/etc/dokuwiki")
        .map_while(Result::ok)
    {
        let name = entry.file_name().into_string().expect("a name");
        if !NOT_COPIED.contains(&name.as_str()) && entry.path().is_file() {
            fs::copy(entry.path(), root.join("conf").join(&name)).expect("copy");
        }
    }
    let main = root.join("conf/dokuwiki.php");
    let text = read_file(&main).replace("/var/lib/dokuwiki/data", "./data");
    fs::write(&main, text).expect("dokuwiki.php");
    fs::create_dir(root.join("data")).expect("data");
    for name in DATA {
        make_folder(&root.join("data").join(name));
    }
    make_writable(&root.join("data"));
    make_writable(&root.join("conf"));
}

struct Wiki {
    nginx: Nginx,
    daemon: Daemon,
    jar: PathBuf,
}

impl Wiki {
    fn start() -> Wiki {
        let settings = "pm = \"dynamic\"\nmax_children = 24\nstart_servers = 1\nmin_spare_servers = 1\n\
                        max_spare_servers = 2\n";
        let application = "php_admin_value = { opcache.file_update_protection = 0 }\n";
        let daemon = Daemon::start(|dir| php_pool(dir, settings, application));
        let root = daemon.dir.join("wiki");
        unpack(&root);
        let upstream = format!("unix:{}", daemon.socket("www").display());
        let nginx = Nginx::start(&php_location(&root.display().to_string(), &upstream, ""), "");
        let jar = daemon.dir.join("cookies");
        Wiki { nginx, daemon, jar }
    }

    fn browse(&self, path: &str, arguments: &[&str]) -> Http {
        let jar = self.jar.display().to_string();
        let url = self.nginx.url(path);
        http(&[&["--cookie", &jar, "--cookie-jar", &jar], arguments, &[&url]].concat())
    }

    fn page(&self, path: &str) -> String {
        let answer = self.browse(path, &[]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.head);
        answer.text()
    }
}

fn hidden<'a>(form: &'a str, name: &str) -> &'a str {
    let start = format!("name=\"{name}\" value=\"");
    let at = form
        .find(&start)
        .unwrap_or_else(|| panic!("no field {name} in {form}"))
        + start.len();
    form[at..].split('"').next().unwrap_or_default()
}

#[test]
fn a_wiki_is_installed_written_and_illustrated() {
    let wiki = Wiki::start();
    install(&wiki);
    let denied = wiki.page("/doku.php?id=start");
    assert!(
        denied.contains("Permission Denied"),
        "a closed wiki shows nothing to strangers"
    );
    log_in(&wiki);
    write_a_page(&wiki);
    upload_pictures(&wiki);
    assert_contains(&wiki.page("/doku.php?id=start&do=search&q=yard"), "Search");
    read_by_many(&wiki);
    log_out(&wiki);
    assert_quiet(&wiki.daemon);
}

fn install(wiki: &Wiki) {
    let form = wiki.page("/install.php");
    assert!(
        form.contains("name=\"d[superuser]\""),
        "no installer form: {form}"
    );
    let fields = [
        "submit=",
        "l=en",
        "d[title]=Forks",
        "d[acl]=on",
        "d[superuser]=ada",
        "d[fullname]=Ada L",
        "d[email]=ada@example.org",
        "d[password]=sec ret&+",
        "d[confirm]=sec ret&+",
        "d[policy]=2",
        "d[license]=cc-by-sa",
    ];
    let data: Vec<&str> = fields
        .iter()
        .flat_map(|field| ["--data-urlencode", field])
        .collect();
    let answer = wiki.browse("/install.php", &data);
    let done = answer.text();
    assert!(
        done.contains("The configuration was finished successfully."),
        "{}{done}",
        answer.head
    );
}

fn log_in(wiki: &Wiki) {
    let form = wiki.page("/doku.php?id=start&do=login");
    let token = format!("sectok={}", hidden(&form, "sectok"));
    let log_in = |password: &str| {
        let data = [
            "--data-urlencode",
            &token,
            "--data",
            "id=start&do=login&u=ada",
            "--data-urlencode",
            password,
        ];
        wiki.browse("/doku.php", &data)
    };
    assert_contains(&log_in("p=wrong").text(), "Sorry, username or password was wrong");
    let answer = log_in("p=sec ret&+");
    assert_eq!(answer.status, 302, "{}", answer.head);
    assert_eq!(
        answer.header("Location"),
        Some(wiki.nginx.url("/doku.php?id=start").as_str())
    );
    let page = wiki.page("/doku.php?id=start");
    assert_contains(&page, "Logged in as");
    assert_contains(&page, "Ada L");
}

fn write_a_page(wiki: &Wiki) {
    let form = wiki.page("/doku.php?id=start&do=edit");
    let fields = [
        "sectok",
        "id",
        "rev",
        "date",
        "prefix",
        "suffix",
        "changecheck",
        "target",
    ];
    let mut data: Vec<String> = fields
        .iter()
        .map(|name| format!("{name}={}", hidden(&form, name)))
        .collect();
    data.push(format!("wikitext={PAGE}"));
    data.push("summary=first".into());
    let send = |button: &str| {
        let data: Vec<&str> = data
            .iter()
            .flat_map(|field| ["--data-urlencode", field.as_str()])
            .collect();
        wiki.browse("/doku.php?id=start", &[&data[..], &["--data", button]].concat())
    };
    let preview = send("do[preview]=1").text();
    assert_contains(&preview, "class=\"preview\"");
    assert_contains(&preview, "<strong>yard</strong> &amp; &lt;nobr&gt; ümläut");
    assert!(
        wiki.page("/doku.php?id=start")
            .contains("This topic does not exist yet"),
        "a preview saves nothing"
    );
    let saved = send("do[save]=1");
    assert_eq!(saved.status, 302, "{}", saved.head);
    let page = wiki.page("/doku.php?id=start");
    assert_contains(&page, "<strong>yard</strong> &amp; &lt;nobr&gt; ümläut");
    assert_eq!(wiki.browse("/doku.php?id=start&do=export_raw", &[]).text(), PAGE);
}

fn read_by_many(wiki: &Wiki) {
    let jar = wiki.jar.display().to_string();
    let files = wiki.daemon.dir.join("page#1.html").display().to_string();
    let url = wiki.nginx.url("/doku.php?id=start&do=export_raw&reader=[1-100]");
    let many = ["--parallel", "--parallel-immediate", "--parallel-max", "6"];
    let rest = [
        "--fail-early",
        "--fail",
        "--cookie",
        &jar,
        "--output",
        &files,
        &url,
    ];
    curl(&[&many[..], &rest[..]].concat());
    for reader in 1..=100 {
        let file = wiki.daemon.dir.join(format!("page{reader}.html"));
        assert_eq!(read_file(file), PAGE, "reader {reader}");
    }
}

fn upload_pictures(wiki: &Wiki) {
    let picture = png();
    let file = wiki.daemon.dir.join("pic.png");
    fs::write(&file, &picture).expect("picture");
    let form = wiki.page("/doku.php?id=start&do=edit");
    let token = hidden(&form, "sectok");
    let upload = [
        "--form",
        "call=mediaupload",
        "--form",
        "ns=wiki",
        "--form",
        "mediaid=form.png",
        "--form",
        &format!("sectok={token}"),
        "--form",
        &format!("qqfile=@{}", file.display()),
    ];
    let answer = wiki.browse("/lib/exe/ajax.php", &upload).text();
    assert_contains(&answer, "\"success\":true");
    let path = format!("/lib/exe/ajax.php?call=mediaupload&ns=wiki&qqfile=body.png&sectok={token}");
    let body = format!("@{}", file.display());
    let answer = wiki.browse(
        &path,
        &[
            "--header",
            "Content-Type: application/octet-stream",
            "--data-binary",
            &body,
        ],
    );
    assert_contains(&answer.text(), "\"success\":true");
    for name in ["form.png", "body.png"] {
        let got = wiki.browse(&format!("/lib/exe/fetch.php?media=wiki:{name}"), &[]);
        assert_eq!(got.header("Content-Type"), Some("image/png"), "{}", got.head);
        assert!(
            got.body == picture,
            "{name}: {} bytes came back of {}",
            got.body.len(),
            picture.len()
        );
    }
}

fn log_out(wiki: &Wiki) {
    let form = wiki.page("/doku.php?id=start&do=edit");
    let path = format!("/doku.php?id=start&do=logout&sectok={}", hidden(&form, "sectok"));
    assert_eq!(wiki.browse(&path, &[]).status, 302);
    assert!(wiki.page("/doku.php?id=start").contains("Permission Denied"));
    assert_eq!(
        wiki.browse("/lib/exe/fetch.php?media=wiki:form.png", &[]).status,
        403
    );
}

fn png() -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut bytes, b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]);
    let noise: Vec<u8> = (0..200_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    chunk(&mut bytes, b"noIs", &noise);
    chunk(&mut bytes, b"IDAT", &[0x78, 0x9c, 0x63, 0x60, 0, 0, 0, 2, 0, 1]);
    chunk(&mut bytes, b"IEND", b"");
    bytes
}

fn chunk(bytes: &mut Vec<u8>, kind: &[u8; 4], content: &[u8]) {
    bytes.extend_from_slice(&u32::try_from(content.len()).expect("a length").to_be_bytes());
    let start = bytes.len();
    bytes.extend_from_slice(kind);
    bytes.extend_from_slice(content);
    let crc = bytes[start..].iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    bytes.extend_from_slice(&(!crc).to_be_bytes());
}
