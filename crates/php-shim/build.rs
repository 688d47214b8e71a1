//! Compiles the shim for each PHP version with installed headers, into shared objects that become part of forkyard-php.
//! Packages install them as files in `FORKYARD_SHIM_DIR` instead, so that PHP versions can be added later.
//!
//! Without PHP headers the build succeeds, and forkyard-php reports at run time what is missing.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const OLDEST: (u32, u32) = (8, 2);
const SHIM: &str = "shim";
/// Part of forkyard-php itself.
const TIMER: &str = "program/timer.c";
const ABI: &str = "../runtimes/src/abi";

fn main() {
    println!("cargo:rerun-if-changed={SHIM}");
    println!("cargo:rerun-if-changed={TIMER}");
    println!("cargo:rerun-if-changed={ABI}/forkyard.h");
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rerun-if-env-changed=FORKYARD_SHIM_DIR");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));

    cc::Build::new()
        .warnings(true)
        .extra_warnings(true)
        .file(TIMER)
        .compile("forkyard_timer");

    let files = env::var_os("FORKYARD_SHIM_DIR").map(PathBuf::from);
    if let Some(directory) = &files {
        fs::create_dir_all(directory).expect("FORKYARD_SHIM_DIR is writable");
    }

    let mut table =
        String::from("/// One for each version, the oldest first.\npub static SHIMS: &[Shim] = &[\n");
    let mut built = Vec::new();
    for version in installed() {
        let Some(headers) = Headers::find(&version) else {
            continue;
        };
        let path = match &files {
            Some(directory) => directory.join(format!("{version}-{}.so", headers.api)),
            None => out.join(format!("forkyard-php-shim-{}.so", headers.api)),
        };
        if let Err(reason) = compile(&headers, &path) {
            println!("cargo:warning=no PHP {version} for forkyard-php: {reason}");
            continue;
        }
        built.push(version.clone());
        if files.is_some() {
            continue;
        }
        writeln!(
            table,
            "    Shim {{ version: {version:?}, api: {}, object: include_bytes!({path:?}) }},",
            headers.api
        )
        .expect("to memory");
    }
    table.push_str("];\n");
    let newest = built.last().map_or("8.2", String::as_str);
    println!("cargo:rustc-env=FORKYARD_PHP={newest}");
    println!("cargo:newest={newest}");
    if built.is_empty() {
        println!(
            "cargo:warning=no PHP headers found (php-config8.2, Debian: php8.2-dev): forkyard-php can't run PHP"
        );
    }
    fs::write(out.join("shims.rs"), table).expect("OUT_DIR is writable");
}

fn installed() -> Vec<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let names = env::split_paths(&path)
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| entry.file_name().into_string().ok());
    let versions: BTreeSet<(u32, u32)> = names
        .filter_map(|name| {
            let (major, minor) = name.strip_prefix("php-config")?.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
        .filter(|version| *version >= OLDEST)
        .collect();
    versions
        .into_iter()
        .map(|(major, minor)| format!("{major}.{minor}"))
        .collect()
}

struct Headers {
    /// php-config's API number, which identifies the layout of PHP's structures.
    api: String,
    includes: Vec<String>,
}

impl Headers {
    fn find(version: &str) -> Option<Headers> {
        let ask = |option: &str| {
            let output = Command::new(format!("php-config{version}"))
                .arg(option)
                .output()
                .ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| text.trim().to_owned())
        };
        let includes: Vec<String> = ask("--includes")?.split_whitespace().map(str::to_owned).collect();
        for directory in includes.iter().filter_map(|option| option.strip_prefix("-I")) {
            let header = Path::new(directory).join("main/php_version.h");
            if header.exists() {
                println!("cargo:rerun-if-changed={}", header.display());
            }
        }
        Some(Headers {
            api: ask("--phpapi")?,
            includes,
        })
    }
}

fn compile(headers: &Headers, object: &Path) -> Result<(), Box<dyn Error>> {
    let compiler = cc::Build::new()
        .opt_level(2)
        .debug(false)
        .pic(true)
        .warnings(true)
        .extra_warnings(true)
        .flag_if_supported("-Wno-unused-parameter")
        // Declarations differ between PHP versions.
        .flag_if_supported("-Werror=implicit-function-declaration")
        .flag_if_supported("-Werror=int-conversion")
        .flag_if_supported("-Werror=incompatible-pointer-types")
        .flag_if_supported("-Werror=discarded-qualifiers")
        .flag_if_supported("-fvisibility=hidden")
        // Jumps between stacks fail the checks of the fortified longjmp(3).
        .flag_if_supported("-U_FORTIFY_SOURCE")
        .try_get_compiler()?;
    let output = compiler
        .to_command()
        .arg("-shared")
        .args(&headers.includes)
        .arg(format!("-I{ABI}"))
        .arg(Path::new(SHIM).join("shim.c"))
        .arg("-o")
        .arg(object)
        .output()
        .map_err(|error| format!("run {}: {error}", compiler.path().display()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr)
            .replace('\n', " | ")
            .into())
    }
}
