//! The fastcgi part.
