//! The text of an nginx site.

use super::{Kind, Site};
use forkyard_config::release::{LAST, NEXT};
use std::fmt::Write as _;

/// Denies files with a leading dot in their names.
const NO_DOT_FILES: &str = r"
    # Names that begin with a dot are not for browsers.
    location ~ /\.(?!well-known(/|$)) {
        return 404;
    }
";
/// Files to deny if the document root is the whole project.
const PROJECT_FILES: &str = r"^/(vendor|node_modules)/|^/(composer|package)[^/]*\.(json|lock|phar)$|~$|\.(bak|ini|lock|log|old|orig|save|sql|swp|toml)(\.(bz2|gz|xz|zip|zst))?$";

/// The upload limit. nginx's default is 1 MB.
const SIZE: &str = r"
    # The most that a visitor can send at once. More is answered with 413.
    client_max_body_size 64m;
";
/// The port in the client's request, for absolute URLs. Some distributions' parameters contain the host without the
/// port.
const PORT: &str = r#"
    # The port that the visitor has asked for, if it has named one.
    set $port "";
    if ($http_host ~ "(:[0-9]+)$") {
        set $port $1;
    }
"#;
const PARAMETERS: &str = "include fastcgi_params;\n        fastcgi_param HTTP_HOST $host$port;\n        \
                          fastcgi_param REQUEST_START $msec;";

/// Sends WebSocket requests to the HTTP socket.
const UPGRADE: &str = "error_page 418 = @websocket;
        if ($http_upgrade ~* \"^websocket$\") {
            return 418;
        }
        ";

/// Many applications: static files and scripts of each. nginx ignores `try_files` in a location with `if`, so each `if` is in the
/// server block. TOP is the applications' directory, quoted.
const SITES: &str = include_str!("sites.conf");

/// The two other links, and the names of their locations.
const OTHERS: [(&str, &str); 2] = [("next", NEXT), ("last", LAST)];

/// Returns the directives that look for a file in the release in service, and then in the others. The link may move between
/// nginx's search for the file and its open.
fn search(files: &str, end: &str) -> String {
    format!("try_files {files} @next{end};\n        error_page 404 = @next{end};")
}

/// Quotes a path for nginx if necessary.
fn nginx_word(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(is_plain) {
        return path.to_owned();
    }
    format!("\"{}\"", quoted(path))
}

pub(super) fn quoted(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"")
}

impl Site {
    pub(super) fn nginx(&self) -> String {
        let (ending, name) = match &self.server_name {
            Some(name) => ("", name.as_str()),
            None => (" default_server", "_"),
        };
        let locations = match self.kind {
            Kind::Php => self.scripts(),
            Kind::Sites => self.sites(),
            Kind::Python | Kind::Asgi | Kind::Ruby | Kind::Node => self.program(),
        };
        format!(
            "server {{\n    listen 80{ending};\n    listen [::]:80{ending};\n    server_name {name};\n{SIZE}{PORT}{locations}}}\n"
        )
    }

    fn scripts(&self) -> String {
        let (socket, root) = (
            self.socket(),
            nginx_word(&format!("{}{}", self.root, self.documents)),
        );
        let secrets = match self.documents.as_str() {
            "" => format!(
                "\n    # Nor are the project's own files.\n    location ~* {PROJECT_FILES} {{\n        return 404;\n    }}\n"
            ),
            _ => String::new(),
        };
        let front = "/index.php?$query_string";
        let (first, check, others) = match self.has_releases {
            true => (
                search("$uri $uri/", ""),
                "",
                self.others("", &self.documents, "$uri", front),
            ),
            false => (
                format!("try_files $uri $uri/ {front};"),
                "try_files $uri =404;\n        ",
                String::new(),
            ),
        };
        format!(
            "    root {root};\n    index index.php index.html;\n{NO_DOT_FILES}{secrets}\n    location / {{\n        {first}\n    \
             }}\n{others}\n    location ~ \\.php$ {{\n        {check}\
             {PARAMETERS}\n        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n        \
             fastcgi_pass unix:{socket};\n    }}\n"
        )
    }

    /// Returns the locations that look for a file in the release that is deployed, and in the one before. `end`: of their names;
    /// `then`: the last resort.
    fn others(&self, end: &str, below: &str, file: &str, then: &str) -> String {
        let mut text = "\n    # A page that is open finds its files in the release that made it.".to_owned();
        for (at, (name, suffix)) in OTHERS.iter().enumerate() {
            let root = nginx_word(&format!("{}{suffix}{below}", self.root));
            let next = OTHERS.get(at + 1);
            let next = next.map_or_else(|| then.to_owned(), |(name, _)| format!("@{name}{end}"));
            let _ = write!(
                text,
                "\n    location @{name}{end} {{\n        root {root};\n        try_files {file} {next};\n    }}\n"
            );
        }
        text
    }

    /// Returns the locations of a program that answers every request without a static file.
    fn program(&self) -> String {
        let Site { root, has, .. } = self;
        let socket = self.socket();
        let upgrade = if self.speaks_http() { UPGRADE } else { "" };
        let pass = format!("{PARAMETERS}\n        fastcgi_pass unix:{socket};");
        let mut text = NO_DOT_FILES.to_owned();
        if let Some(gathered) = has.collected {
            let root = nginx_word(root);
            let file = format!("/{gathered}$name");
            let (first, others) = match self.has_releases {
                true => (
                    search(&file, "_static"),
                    self.others("_static", "", &file, "@app"),
                ),
                false => (format!("try_files {file} @app;"), String::new()),
            };
            text += &format!(
                "\n    # What manage.py collectstatic has gathered: STATIC_ROOT = BASE_DIR / \"{gathered}\".\n    location ~ \
                 ^/static(?<name>/.+)$ {{\n        root {root};\n        {first}\n    }}\n{others}"
            );
        }
        if has.public {
            let public = nginx_word(&format!("{root}/public"));
            let (first, others) = match self.has_releases {
                true => (search("$uri", ""), self.others("", "/public", "$uri", "@app")),
                false => ("try_files $uri @app;".to_owned(), String::new()),
            };
            text += &format!(
                "\n    # Files in the directory public are served without the application.\n    location / {{\n        \
                 root {public};\n        {upgrade}{first}\n    }}\n{others}"
            );
        } else {
            text += &format!("\n    location / {{\n        {upgrade}{pass}\n    }}\n");
        }
        if has.public || has.collected.is_some() {
            text += &format!("\n    location @app {{\n        {pass}\n    }}\n");
        }
        if self.speaks_http() {
            let socket = self.http_socket();
            text += &format!(
                "\n    location @websocket {{\n        proxy_pass http://unix:{socket}:;\n        proxy_http_version 1.1;\n        \
                 proxy_set_header Upgrade $http_upgrade;\n        proxy_set_header Connection upgrade;\n        \
                 proxy_set_header Host $host$port;\n        proxy_set_header X-Real-IP $remote_addr;\n        \
                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n        \
                 proxy_set_header X-Forwarded-Proto $scheme;\n        proxy_set_header X-Forwarded-Host $host$port;\n        \
                 proxy_read_timeout 1h;\n    }}\n"
            );
        }
        text
    }

    fn sites(&self) -> String {
        let (socket, top) = (self.socket(), quoted(&self.root));
        let text = SITES.replace("TOP", &top).replace("SECRET", PROJECT_FILES);
        format!(
            "    root {};\n\n{text}{NO_DOT_FILES}\n    location @app {{\n        if ($app = \"\") {{\n            return 404;\n        \
             }}\n        {PARAMETERS}\n        fastcgi_param FORKYARD_APP_ROOT \"{top}/$app\";\n        \
             fastcgi_param SCRIPT_FILENAME $script if_not_empty;\n        fastcgi_param DOCUMENT_ROOT \"{top}/$pages\";\n        \
             fastcgi_param SCRIPT_NAME $script_name;\n        fastcgi_param PATH_INFO $path_info;\n        \
             fastcgi_pass unix:{socket};\n    }}\n",
            nginx_word(&self.root)
        )
    }
}
