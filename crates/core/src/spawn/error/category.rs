//! What kind of error it is.

use serde::Serialize;

/// The kinds of errors, as Passenger has them. An application names one in `error/category`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Category {
    /// A programming error.
    #[serde(rename = "INTERNAL_ERROR")]
    Internal,
    /// About a file or a path.
    #[serde(rename = "FILE_SYSTEM_ERROR")]
    FileSystem,
    /// The operating system refused something.
    #[serde(rename = "OPERATING_SYSTEM_ERROR")]
    OperatingSystem,
    /// Reading or writing failed.
    #[serde(rename = "IO_ERROR")]
    Io,
    /// It took too long.
    #[serde(rename = "TIMEOUT_ERROR")]
    Timeout,
}

impl Category {
    const ALL: [Category; 5] = [
        Category::Internal,
        Category::FileSystem,
        Category::OperatingSystem,
        Category::Io,
        Category::Timeout,
    ];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Internal => "INTERNAL_ERROR",
            Category::FileSystem => "FILE_SYSTEM_ERROR",
            Category::OperatingSystem => "OPERATING_SYSTEM_ERROR",
            Category::Io => "IO_ERROR",
            Category::Timeout => "TIMEOUT_ERROR",
        }
    }

    /// The category with this name.
    pub fn parse(name: &str) -> Option<Category> {
        Category::ALL.into_iter().find(|category| category.name() == name)
    }

    /// The kind of a system call's error by its number (errno(3)): about a path, or of the operating system.
    pub fn of_errno(errno: i32) -> Category {
        // ENOENT, EACCES, EEXIST, ENOTDIR, EISDIR, ENOSPC, EROFS, ENAMETOOLONG, ENOTEMPTY, ELOOP, EDQUOT
        const ABOUT_PATHS: [i32; 11] = [2, 13, 17, 20, 21, 28, 30, 36, 39, 40, 122];
        if ABOUT_PATHS.contains(&errno) {
            Category::FileSystem
        } else {
            Category::OperatingSystem
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for category in Category::ALL {
            assert_eq!(Category::parse(category.name()), Some(category));
        }
        assert_eq!(Category::parse("UNKNOWN_ERROR_CATEGORY"), None);
        assert_eq!(Category::of_errno(2), Category::FileSystem);
        assert_eq!(Category::of_errno(11), Category::OperatingSystem);
    }
}
