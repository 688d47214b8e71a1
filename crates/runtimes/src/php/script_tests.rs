use super::has_two_dots;
use super::{FileSystem, Parameters, Rules, Script, fix_up, is_allowed};

#[derive(Debug, Clone, PartialEq)]
struct List(Vec<(String, String)>);

impl Parameters for List {
    fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|(n, _)| n.as_bytes() == name)
            .map(|(_, v)| v.as_bytes())
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        let value = String::from_utf8(value.to_vec()).unwrap();
        match self.0.iter_mut().find(|(n, _)| n.as_bytes() == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((String::from_utf8(name.to_vec()).unwrap(), value)),
        }
    }

    fn remove(&mut self, name: &[u8]) {
        self.0.retain(|(n, _)| n.as_bytes() != name);
    }
}

struct Site;

impl FileSystem for Site {
    fn exists(&self, path: &[u8]) -> bool {
        matches!(path, b"/" | b"/d" | b"/d/p.php" | b"/d/../d/p.php")
    }

    fn is_file(&self, path: &[u8]) -> bool {
        path == b"/d/p.php"
    }
}

fn rules() -> Rules {
    Rules {
        fix_pathinfo: true,
        ..Rules::default()
    }
}

fn long(name: &str) -> String {
    let (original, short) = match name.strip_prefix("ORIG_") {
        Some(rest) => ("ORIG_", rest),
        None => ("", name),
    };
    let long = match short {
        "SF" => "SCRIPT_FILENAME",
        "PT" => "PATH_TRANSLATED",
        "PI" => "PATH_INFO",
        "SN" => "SCRIPT_NAME",
        "DR" => "DOCUMENT_ROOT",
        other => other,
    };
    format!("{original}{long}")
}

fn list(text: &str) -> List {
    let pair = |item: &str| {
        let (name, value) = item.split_once('=').unwrap();
        (long(name), value.replace("~", " "))
    };
    List(text.split_whitespace().map(pair).collect())
}

#[track_caller]
fn check_with(rules: &Rules, sent: &str, expected: &str) -> Script {
    let mut params = list(sent);
    let script = fix_up(&mut params, rules, &Site);
    assert_eq!(params, list(expected), "sent {sent}");
    script
}

#[track_caller]
fn check(sent: &str, expected: &str) -> Script {
    check_with(&rules(), sent, expected)
}

const FOUND: Script = Script {
    is_named: true,
    path: Some(b"SCRIPT_FILENAME"),
    uri: b"SCRIPT_NAME",
    has_zero_byte: false,
};
const LOST: Script = Script {
    is_named: true,
    path: None,
    uri: b"SCRIPT_NAME",
    has_zero_byte: false,
};
const REFUSED: Script = Script {
    has_zero_byte: true,
    ..LOST
};

#[test]
fn everything_in_every_parameter_is_taken_apart() {
    let script = check(
        "DR=/d SF=/d/p.php/a/b SN=/p.php/a/b PI=/p.php/a/b PT=/d/p.php/a/b",
        "DR=/d SF=/d/p.php SN=/p.php PI=/a/b PT=/d/a/b ORIG_PI=/p.php/a/b ORIG_SN=/p.php/a/b \
         ORIG_SF=/d/p.php/a/b ORIG_PT=/d/p.php/a/b",
    );
    assert_eq!(script, FOUND);
}

#[test]
fn what_is_right_already_stays() {
    let sent = "DR=/d SF=/d/p.php SN=/p.php PI=/a/b";
    assert_eq!(check(sent, sent), FOUND);
    assert_eq!(check("SF=/d/p.php", "SF=/d/p.php"), FOUND);
}

#[test]
fn without_path_info_there_is_none_afterwards() {
    check(
        "DR=/d SF=/d/p.php/a/b SN=/p.php/a/b",
        "DR=/d SF=/d/p.php SN=/p.php/a/b ORIG_SF=/d/p.php/a/b PT=/d",
    );
    check(
        "DR=/d SF=/d/p.php/ SN=/p.php/",
        "DR=/d SF=/d/p.php SN=/p.php/ ORIG_SF=/d/p.php/ PT=/d",
    );
}

#[test]
fn path_info_no_longer_than_the_tail_stays() {
    check(
        "DR=/d/ SF=/d/p.php/a SN=/p.php PI=/a",
        "DR=/d/ SF=/d/p.php SN=/p.php PI=/a ORIG_SF=/d/p.php/a PT=/d/a",
    );
}

#[test]
fn without_document_root_it_is_guessed() {
    check(
        "SF=/d/p.php/a/b SN=/p.php PI=/x/a/b",
        "SF=/d/p.php SN=/x PI=/a/b ORIG_PI=/x/a/b ORIG_SN=/p.php ORIG_SF=/d/p.php/a/b PT=/d/a/b",
    );
    check(
        "SF=/d/p.php/a SN=/other",
        "SF=/d/p.php SN=/other ORIG_SF=/d/p.php/a",
    );
    let rules = Rules {
        doc_root: Some(b"/root".to_vec()),
        ..rules()
    };
    check_with(&rules, "SF=/d/p.php SN=/p.php", "SF=/d/p.php SN=/p.php DR=/root");
}

#[test]
fn apache_sends_a_url() {
    check(
        "DR=/d SF=proxy:fcgi://h:9/d/p.php/1%202 SN=/p.php/1~2",
        "DR=/d SF=/d/p.php SN=/p.php ORIG_SN=/p.php/1~2 PI=/1%202 ORIG_SF=/d/p.php/1%202 PT=/d/1%202",
    );
    check(
        "DR=/d SF=proxy:fcgi://h:9/d/p.php?q=1 SN=/p.php PI=/x",
        "DR=/d SF=/d/p.php SN=/p.php PI=/x",
    );
    check(
        "DR=/d SF=Proxy:Balancer://h/d/p.php/a+b SN=/p.php/a+b",
        "DR=/d SF=/d/p.php SN=/p.php ORIG_SN=/p.php/a+b PI=/a+b ORIG_SF=/d/p.php/a+b PT=/d/a+b",
    );
    check(
        "DR=/d SF=proxy:fcgi://h/d/p.php/a SN=/else",
        "DR=/d SF=/d/p.php SN=/else PI=/a ORIG_SF=/d/p.php/a PT=/d/a",
    );
    check(
        "DR=/d SF=proxy:fcgi://h/d/p.php/a SN=/p.php PI=/b",
        "DR=/d SF=/d/p.php SN=/b PI=/a ORIG_PI=/b ORIG_SN=/p.php ORIG_SF=/d/p.php/a PT=/d/a",
    );
}

#[test]
fn apache_under_later_versions() {
    let rules = Rules {
        decode_path_info: true,
        ..rules()
    };
    check_with(
        &rules,
        "DR=/d SF=proxy:fcgi://h:9/d/p.php/1%202 SN=/p.php/1~2",
        "DR=/d SF=/d/p.php SN=/p.php ORIG_SN=/p.php/1~2 PI=/1~2 ORIG_SF=/d/p.php/1%202 PT=/d/1~2",
    );
    let rules = Rules {
        decode_script_path: true,
        ..self::rules()
    };
    check_with(
        &rules,
        "DR=/d SF=proxy:fcgi://h:9/d/p.php/1%202 SN=/p.php/1~2",
        "DR=/d SF=/d/p.php SN=/p.php ORIG_SN=/p.php/1~2 PI=/1~2 ORIG_SF=/d/p.php/1~2 PT=/d/1~2",
    );
}

#[test]
fn a_url_without_path_is_no_script() {
    assert_eq!(
        check("SF=proxy:fcgi://h:9 SN=/p", "SN=/p ORIG_SF=proxy:fcgi://h:9"),
        LOST
    );
}

#[test]
fn old_apache_names_php_itself() {
    check(
        "DR=/d SF=/cgi/php SN=/cgi/php PT=/d/p.php PI=/p.php REDIRECT_URL=/p.php",
        "DR=/d SF=/d/p.php SN=/p.php REDIRECT_URL=/p.php ORIG_SF=/cgi/php ORIG_PI=/p.php \
         ORIG_PT=/d/p.php ORIG_SN=/cgi/php",
    );
}

#[test]
fn iis_repeats_the_script_name() {
    check(
        "SERVER_SOFTWARE=Microsoft-IIS/10 SF=/d/p.php SN=/p.php PI=/p.php/a",
        "SERVER_SOFTWARE=Microsoft-IIS/10 SF=/d/p.php SN=/p.php PI=/a ORIG_PI=/p.php/a",
    );
    check(
        "SERVER_SOFTWARE=Microsoft-IIS/10 SF=/d/p.php SN=/p.php PI=/p.php",
        "SERVER_SOFTWARE=Microsoft-IIS/10 SF=/d/p.php SN=/p.php ORIG_PI=/p.php",
    );
}

#[test]
fn nothing_found() {
    assert_eq!(
        check("DR=/d SF=/d/q.php SN=/q.php", "DR=/d SN=/q.php ORIG_SF=/d/q.php"),
        LOST
    );
    assert_eq!(check("DR=/d SF=/d/ SN=/", "DR=/d SN=/ ORIG_SF=/d/"), LOST);
    assert_eq!(
        check("SF=/d/../d/p.php SN=/p.php", "SF=/d/../d/p.php SN=/p.php"),
        LOST
    );
    let unnamed = check("SN=/p.php", "SN=/p.php");
    assert!(!unnamed.is_named && unnamed.path.is_none());
}

#[test]
fn a_name_with_a_zero_byte_is_no_script() {
    let discard = Rules {
        discard_path: true,
        ..Rules::default()
    };
    let decode = Rules {
        decode_script_path: true,
        ..rules()
    };
    for (rules, sent, expected) in [
        (rules(), "SF=/d/p.php\0.txt SN=/p.php", REFUSED),
        (rules(), "SF=/d/p.php\0 PI=/a", REFUSED),
        (rules(), "SF=/d/p.php/a\0b PI=/a\0b", REFUSED),
        (rules(), "PT=/d/p.php\0", REFUSED),
        (rules(), "SF=/cgi/php PT=/d/p.php\0 REDIRECT_URL=/p.php", REFUSED),
        (rules(), "SF=/d/p.php PT=/d/a\0b PI=/a\0b", FOUND),
        (Rules::default(), "SF=/d/p.php PT=/d/p.php\0", REFUSED),
        (discard.clone(), "SF=/d/p.php PT=/d/p.php\0", FOUND),
        (discard, "SF=/d/p.php\0", REFUSED),
    ] {
        assert_eq!(check_with(&rules, sent, sent), expected, "{sent:?}");
    }
    let sent = "SF=proxy:fcgi://h/d/p.php%00.txt";
    let script = fix_up(&mut list(sent), &decode, &Site);
    assert_eq!(script, LOST, "{sent}");
}

#[test]
fn path_translated_alone_is_enough() {
    assert_eq!(check("PT=/d/p.php", "PT=/d/p.php SF=/d/p.php"), FOUND);
}

#[test]
fn without_fix_pathinfo_nothing_is_changed() {
    let rules = Rules::default();
    let sent = "SF=/a.php PT=/b.php SN=/s PI=/i";
    let script = check_with(&rules, sent, sent);
    assert_eq!(
        script,
        Script {
            is_named: true,
            path: Some(b"PATH_TRANSLATED"),
            uri: b"PATH_INFO",
            has_zero_byte: false,
        }
    );
    let rules = Rules {
        discard_path: true,
        ..rules
    };
    assert_eq!(
        check_with(&rules, sent, sent).path,
        Some(b"SCRIPT_FILENAME".as_slice())
    );
    assert_eq!(
        check_with(&rules, "PT=/b.php SN=/s", "PT=/b.php SN=/s").path,
        Some(b"PATH_TRANSLATED".as_slice())
    );
}

#[test]
fn endings() {
    let endings = [".php".to_owned(), "phar".to_owned()];
    assert!(is_allowed(b"/d/p.php", &endings) && is_allowed(b"/xphar", &endings));
    assert!(
        !is_allowed(b"/d/p.PHP", &endings) && !is_allowed(b".php", &endings) && !is_allowed(b"", &endings)
    );
    assert!(is_allowed(b"/anything", &[]));
}

#[test]
fn two_dots_are_found_anywhere() {
    for length in 0..40 {
        for first in 0..length {
            let mut text = vec![b'/'; length];
            text[first] = b'.';
            assert!(!has_two_dots(&text), "{length} {first}");
            if first + 2 < length {
                text[first + 2] = b'.';
                assert!(!has_two_dots(&text), "{length} {first}");
            }
            if first + 1 < length {
                text[first + 1] = b'.';
                assert!(has_two_dots(&text), "{length} {first}");
            }
        }
        // Bytes that differ from a dot by a bit, or by one.
        for byte in [b'.' | 0x80, b'-', b'/', 0, 0xff] {
            assert!(!has_two_dots(&vec![byte; length]), "{length} {byte}");
        }
    }
}
