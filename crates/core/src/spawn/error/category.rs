//! Error categories.

use serde::Serialize;

/// Passenger's error categories. An application writes one into `error/category`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Category {
    #[serde(rename = "INTERNAL_ERROR")]
    Internal,
    #[serde(rename = "FILE_SYSTEM_ERROR")]
    FileSystem,
    #[serde(rename = "OPERATING_SYSTEM_ERROR")]
    OperatingSystem,
    #[serde(rename = "IO_ERROR")]
    Io,
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

    pub const fn name(self) -> &'static str {
        match self {
            Category::Internal => "INTERNAL_ERROR",
            Category::FileSystem => "FILE_SYSTEM_ERROR",
            Category::OperatingSystem => "OPERATING_SYSTEM_ERROR",
            Category::Io => "IO_ERROR",
            Category::Timeout => "TIMEOUT_ERROR",
        }
    }

    /// Returns the category with this name.
    pub fn parse(name: &str) -> Option<Category> {
        Category::ALL.into_iter().find(|category| category.name() == name)
    }

    /// Returns the category of an error number (errno(3)).
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
