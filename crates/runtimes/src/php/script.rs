//! Finds the script of a request and corrects the parameters that web servers send in different ways.
//!
//! Names: SF is SCRIPT_FILENAME, PT PATH_TRANSLATED, PI PATH_INFO, SN SCRIPT_NAME. The *working path* is SF, or PT
//! without SF. If it is not a file, its longest part that is a file is the script and the rest is PATH_INFO
//! ("/app.php/users/7"). The resulting parameters equal php-fpm's, because scripts see them in `$_SERVER`.

use fastcgi::Params;
use percent_encoding::percent_decode;

/// Access to a request's parameters.
pub trait Parameters {
    /// The value of `name`.
    fn get(&self, name: &[u8]) -> Option<&[u8]>;
    /// Replaces a value in place, or appends it.
    fn set(&mut self, name: &[u8], value: &[u8]);
    /// Removes a parameter.
    fn remove(&mut self, name: &[u8]);
}

impl Parameters for Params {
    #[inline]
    fn get(&self, name: &[u8]) -> Option<&[u8]> {
        Params::get(self, name)
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        Params::set(self, name, value);
    }

    fn remove(&mut self, name: &[u8]) {
        Params::remove(self, name);
    }
}

/// File checks.
pub trait FileSystem {
    /// Whether the path exists.
    fn exists(&self, path: &[u8]) -> bool;
    /// Whether it is a regular file.
    fn is_file(&self, path: &[u8]) -> bool;
}

/// The ini values and versions that matter here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// `cgi.fix_pathinfo`: look for the script in the working path.
    pub fix_pathinfo: bool,
    /// `cgi.discard_path`: never run PATH_TRANSLATED (without `fix_pathinfo`).
    pub discard_path: bool,
    /// `doc_root`: the default for DOCUMENT_ROOT.
    pub doc_root: Option<Vec<u8>>,
    /// PHP 8.5 and later percent-decode Apache's script path first.
    pub decode_script_path: bool,
    /// PHP 8.4 and later percent-decode the PATH_INFO found in Apache's script path.
    pub decode_path_info: bool,
}

/// The result: names of the parameters to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// Whether the request names a script. If not, most parameters are ignored.
    pub is_named: bool,
    /// The parameter with the script's path; `None`: no such script.
    pub path: Option<&'static [u8]>,
    /// The parameter with the request's URI, if it is set.
    pub uri: &'static [u8],
    /// The name contains a zero byte, where PHP would truncate it.
    pub has_zero_byte: bool,
}

const SCRIPT_FILENAME: &[u8] = b"SCRIPT_FILENAME";
const PATH_TRANSLATED: &[u8] = b"PATH_TRANSLATED";
const PATH_INFO: &[u8] = b"PATH_INFO";
const SCRIPT_NAME: &[u8] = b"SCRIPT_NAME";
const DOCUMENT_ROOT: &[u8] = b"DOCUMENT_ROOT";
const REDIRECT_URL: &[u8] = b"REDIRECT_URL";
const APACHE_PREFIXES: [&[u8]; 2] = [b"proxy:fcgi://", b"proxy:balancer://"];

/// Finds the script and corrects the parameters.
pub fn fix_up(params: &mut impl Parameters, rules: &Rules, files: &impl FileSystem) -> Script {
    let usual = usual_path(params, rules);
    let exists = usual.map(|path| files.exists(path));
    if let (Some(path), Some(true)) = (usual, exists) {
        return Script {
            is_named: true,
            path: (!climbs(path)).then_some(SCRIPT_FILENAME),
            uri: SCRIPT_NAME,
            has_zero_byte: false,
        };
    }
    let filename = own(params, SCRIPT_FILENAME);
    let translated = own(params, PATH_TRANSLATED);
    if filename.is_none() && translated.is_none() {
        return Script {
            is_named: false,
            path: None,
            uri: SCRIPT_NAME,
            has_zero_byte: false,
        };
    }
    if has_zero_byte(params, rules) {
        return Script {
            is_named: true,
            path: None,
            uri: SCRIPT_NAME,
            has_zero_byte: true,
        };
    }
    let path_info = fix_iis(params);
    let (filename, is_apache) = fix_apache(params, rules, filename);

    let (path, uri) = if rules.fix_pathinfo {
        let sent = Sent {
            filename,
            translated,
            path_info,
            script_name: own(params, SCRIPT_NAME),
            is_apache,
            exists,
        };
        search(params, rules, files, &sent);
        (SCRIPT_FILENAME, SCRIPT_NAME)
    } else {
        let runs_translated = filename.is_none() || (translated.is_some() && !rules.discard_path);
        let path = if runs_translated {
            PATH_TRANSLATED
        } else {
            SCRIPT_FILENAME
        };
        (
            path,
            if path_info.is_some() {
                PATH_INFO
            } else {
                SCRIPT_NAME
            },
        )
    };
    let is_usable = params
        .get(path)
        .is_some_and(|path| !climbs(path) && !path.contains(&0));
    Script {
        is_named: true,
        path: is_usable.then_some(path),
        uri,
        has_zero_byte: false,
    }
}

/// SF, if it is the working path of a web server such as nginx: absolute, and there is nothing to correct if it exists.
fn usual_path<'p>(params: &'p impl Parameters, rules: &Rules) -> Option<&'p [u8]> {
    let path = params.get(SCRIPT_FILENAME)?;
    let is_absolute = path.first() == Some(&b'/') && path.last() != Some(&b'/') && !path.contains(&0);
    let lacks = |name| params.get(name).is_none();
    let is_usual = rules.fix_pathinfo
        && is_absolute
        && lacks(PATH_TRANSLATED)
        && lacks(REDIRECT_URL)
        && !params.get(PATH_INFO).is_some_and(|_| is_iis(params))
        && !(rules.doc_root.is_some() && lacks(DOCUMENT_ROOT));
    is_usual.then_some(path)
}

/// Whether a parameter that may name the script contains a zero byte. PT counts without SF (old Apache modules) or
/// without `fix_pathinfo`.
fn has_zero_byte(params: &impl Parameters, rules: &Rules) -> bool {
    let has = |name: &[u8]| params.get(name).is_some_and(|value| value.contains(&0));
    let reads_translated = params.get(SCRIPT_FILENAME).is_none()
        || params.get(REDIRECT_URL).is_some()
        || !(rules.fix_pathinfo || rules.discard_path);
    has(SCRIPT_FILENAME) || (reads_translated && has(PATH_TRANSLATED))
}

/// Whether the path has one of the endings and is longer than it. Without endings, all paths are allowed.
pub fn is_allowed(path: &[u8], endings: &[String]) -> bool {
    endings.is_empty()
        || endings
            .iter()
            .any(|end| path.len() > end.len() && path.ends_with(end.as_bytes()))
}

/// A parameter up to its first zero byte, as C reads it.
pub fn text<'a>(params: &'a impl Parameters, name: &[u8]) -> Option<&'a [u8]> {
    let value = params.get(name)?;
    Some(value.split(|byte| *byte == 0).next().unwrap_or(value))
}

fn own(params: &impl Parameters, name: &[u8]) -> Option<Vec<u8>> {
    text(params, name).map(<[u8]>::to_vec)
}

fn is_iis(params: &impl Parameters) -> bool {
    text(params, b"SERVER_SOFTWARE").is_some_and(|name| name.starts_with(b"Microsoft-IIS"))
}

/// IIS sends SN as the beginning of PI. Returns PI.
fn fix_iis(params: &mut impl Parameters) -> Option<Vec<u8>> {
    let path_info = own(params, PATH_INFO)?;
    let is_iis = is_iis(params);
    let rest = text(params, SCRIPT_NAME)
        .and_then(|name| path_info.strip_prefix(name))
        .map(<[u8]>::to_vec);
    let (true, Some(rest)) = (is_iis, rest) else {
        return Some(path_info);
    };
    params.set(b"ORIG_PATH_INFO", &path_info);
    if rest.is_empty() {
        params.remove(PATH_INFO);
        return None;
    }
    params.set(PATH_INFO, &rest);
    Some(rest)
}

/// Apache's mod_proxy sends a URL as SF. Returns SF and whether it was a URL.
fn fix_apache(
    params: &mut impl Parameters,
    rules: &Rules,
    filename: Option<Vec<u8>>,
) -> (Option<Vec<u8>>, bool) {
    let Some(sent) = filename else {
        return (None, false);
    };
    let mut path = sent.clone();
    let mut is_apache = false;
    for prefix in APACHE_PREFIXES {
        let has_prefix = path
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        if !has_prefix {
            continue;
        }
        if let Some(slash) = path[prefix.len()..].iter().position(|byte| *byte == b'/') {
            path.drain(..prefix.len() + slash);
            is_apache = true;
        }
        if let Some(query) = path.iter().position(|byte| *byte == b'?') {
            path.truncate(query);
        }
    }
    if is_apache && rules.decode_script_path {
        path = percent_decode(&path).collect();
    }
    if path != sent {
        params.set(SCRIPT_FILENAME, &path);
    }
    (Some(path), is_apache)
}

struct Sent {
    filename: Option<Vec<u8>>,
    translated: Option<Vec<u8>>,
    path_info: Option<Vec<u8>>,
    script_name: Option<Vec<u8>>,
    is_apache: bool,
    /// Of SF, if it is the usual path.
    exists: Option<bool>,
}

/// `cgi.fix_pathinfo=1`. Afterwards SF is the script or is unset.
fn search(params: &mut impl Parameters, rules: &Rules, files: &impl FileSystem, sent: &Sent) {
    if let (None, Some(root)) = (text(params, DOCUMENT_ROOT), &rules.doc_root) {
        params.set(DOCUMENT_ROOT, root);
    }
    let redirect = own(params, REDIRECT_URL);
    let Some(mut path) = sent.filename.clone().or_else(|| sent.translated.clone()) else {
        return;
    };
    let mut script_name = sent.script_name.clone();
    // Old Apache modules send the path of PHP itself as SF.
    if let (false, Some(translated), Some(url)) = (sent.is_apache, &sent.translated, &redirect) {
        if *translated != path {
            path.clone_from(translated);
            script_name = Some(url.clone());
        }
    }

    if path.is_empty() || (path.last() != Some(&b'/') && sent.exists.unwrap_or_else(|| files.exists(&path))) {
        take_whole(params, sent, &path, script_name.as_deref(), redirect.is_some());
        return;
    }
    match longest_file(&path, files) {
        Some(length) => take_part(params, rules, sent, &path, length, script_name.as_deref()),
        None => {
            if let Some(filename) = &sent.filename {
                params.set(b"ORIG_SCRIPT_FILENAME", filename);
            }
            params.remove(SCRIPT_FILENAME);
            take_script_name(params, sent, script_name.as_deref());
        }
    }
}

fn longest_file(path: &[u8], files: &impl FileSystem) -> Option<usize> {
    let mut rest = path;
    loop {
        let last = |separator| rest.iter().rposition(|byte| *byte == separator);
        rest = &rest[..last(b'/').or_else(|| last(b'\\'))?];
        if files.is_file(rest) {
            return Some(rest.len());
        }
    }
}

fn take_whole(
    params: &mut impl Parameters,
    sent: &Sent,
    path: &[u8],
    script_name: Option<&[u8]>,
    is_redirected: bool,
) {
    take_filename(params, sent, path);
    if is_redirected && !sent.is_apache {
        for (value, name, original) in [
            (&sent.path_info, PATH_INFO, b"ORIG_PATH_INFO".as_slice()),
            (&sent.translated, PATH_TRANSLATED, b"ORIG_PATH_TRANSLATED"),
        ] {
            if let Some(value) = value {
                params.set(original, value);
                params.remove(name);
            }
        }
    }
    take_script_name(params, sent, script_name);
}

fn take_part(
    params: &mut impl Parameters,
    rules: &Rules,
    sent: &Sent,
    path: &[u8],
    length: usize,
    script_name: Option<&[u8]>,
) {
    let (script, tail) = path.split_at(length);
    let mut script_name = script_name.map(<[u8]>::to_vec);
    let mut path_info = sent.path_info.clone();
    let mut is_named = false;

    if sent.is_apache {
        if sent.path_info.as_deref() != Some(tail) {
            let decoded: Vec<u8> = percent_decode(tail).collect();
            if let Some(sent_info) = &sent.path_info {
                name_from_path_info(params, sent, sent_info, sent_info);
                is_named = true;
            } else if let Some(name) = &script_name {
                let cut = |end: &[u8]| {
                    name.strip_suffix(end)
                        .filter(|rest| !rest.is_empty())
                        .map(<[u8]>::to_vec)
                };
                if let Some(rest) = cut(tail).or_else(|| cut(&decoded)) {
                    params.set(b"ORIG_SCRIPT_NAME", name);
                    params.set(SCRIPT_NAME, &rest);
                    script_name = Some(rest);
                    is_named = true;
                }
            }
            let is_found_in_name = sent.path_info.is_none() && script_name.is_some();
            path_info = Some(if rules.decode_path_info && is_found_in_name {
                decoded
            } else {
                tail.to_vec()
            });
        }
    } else if let Some(info) = sent.path_info.as_deref().filter(|info| info.len() > tail.len()) {
        let (head, end) = info.split_at(info.len() - tail.len());
        name_from_path_info(params, sent, info, head);
        is_named = true;
        path_info = Some(end.to_vec());
    }
    if path_info != sent.path_info {
        params.set(PATH_INFO, path_info.as_deref().unwrap_or_default());
    }

    take_filename(params, sent, script);
    translate(
        params,
        sent,
        script,
        script_name.as_deref(),
        path_info.as_deref().unwrap_or_default(),
    );
    if !is_named {
        take_script_name(params, sent, script_name.as_deref());
    }
}

fn name_from_path_info(params: &mut impl Parameters, sent: &Sent, info: &[u8], head: &[u8]) {
    params.set(b"ORIG_PATH_INFO", info);
    if sent.script_name.as_deref() != Some(head) {
        if let Some(name) = &sent.script_name {
            params.set(b"ORIG_SCRIPT_NAME", name);
        }
        params.set(SCRIPT_NAME, head);
    }
}

/// Sets PT to the file that PI would be in the site.
fn translate(
    params: &mut impl Parameters,
    sent: &Sent,
    script: &[u8],
    script_name: Option<&[u8]>,
    path_info: &[u8],
) {
    let root = match (own(params, DOCUMENT_ROOT), script_name) {
        (Some(root), _) => root.strip_suffix(b"/").unwrap_or(&root).to_vec(),
        (None, Some(name)) if contains(script, name) => script[..script.len() - name.len()].to_vec(),
        (None, _) => return,
    };
    if let Some(translated) = &sent.translated {
        params.set(b"ORIG_PATH_TRANSLATED", translated);
    }
    params.set(PATH_TRANSLATED, &[&root, path_info].concat());
}

fn take_filename(params: &mut impl Parameters, sent: &Sent, script: &[u8]) {
    if sent.filename.as_deref() == Some(script) {
        return;
    }
    if let Some(filename) = &sent.filename {
        params.set(b"ORIG_SCRIPT_FILENAME", filename);
    }
    params.set(SCRIPT_FILENAME, script);
}

fn take_script_name(params: &mut impl Parameters, sent: &Sent, name: Option<&[u8]>) {
    let Some(name) = name else { return };
    if sent.script_name.as_deref() == Some(name) {
        return;
    }
    if let Some(sent_name) = &sent.script_name {
        params.set(b"ORIG_SCRIPT_NAME", sent_name);
    }
    params.set(SCRIPT_NAME, name);
}

fn climbs(path: &[u8]) -> bool {
    has_two_dots(path) && path.split(|byte| *byte == b'/').any(|part| part == b"..")
}

/// Whether a text has two dots in a row; eight bytes at a time.
fn has_two_dots(text: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = ONES * 0x7f;
    let chunks = text.chunks_exact(8);
    let rest = chunks.remainder();
    let mut was_dot = false;
    for chunk in chunks.filter_map(<[u8]>::first_chunk) {
        let other = u64::from_le_bytes(*chunk) ^ (ONES * b'.' as u64);
        // The highest bit of each byte that is a dot.
        let dots = !(((other & LOW) + LOW) | other | LOW);
        if dots & (dots << 8 | u64::from(was_dot) << 7) != 0 {
            return true;
        }
        was_dot = dots >> 63 != 0;
    }
    for byte in rest {
        let is_dot = *byte == b'.';
        if is_dot && was_dot {
            return true;
        }
        was_dot = is_dot;
    }
    false
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
