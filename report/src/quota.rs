//! The quotas of another user's program (`baton serve --guest-…`), and those that a program has met.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A limit on another user's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quota {
    /// The memory of one program.
    Arena,
    /// The memory of all of a user's programs.
    HostPool,
    /// The memory of all of a user's programs that does not move, beside the arena or in it.
    Leases,
    /// The number of a user's programs that share the GPU at once.
    Tenants,
    /// The best class of a program.
    Class,
    /// The largest weight of a program.
    Weight,
}

/// A quota that refuses a program's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Met {
    /// The quota: `arena` is `--guest-arena`, and so on.
    pub quota: Quota,
    /// The most that the quota allows, in words.
    pub most: String,
    /// The program's request, in words.
    pub asked: String,
}

impl Quota {
    /// Returns the quota in one word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::HostPool => "host-pool",
            Self::Leases => "leases",
            Self::Tenants => "tenants",
            Self::Class => "class",
            Self::Weight => "weight",
        }
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, most, asked } = self;
        match quota {
            Quota::Arena => {
                write!(
                    f,
                    "a program of another user has no more than {most} (--guest-arena), and this asked for {asked}"
                )
            }
            Quota::HostPool => write!(
                f,
                "all programs of its user together have no more than {most} (--guest-arena and --guest-host-pool), and this \
                 asked for {asked} more"
            ),
            Quota::Leases => write!(
                f,
                "all programs of its user together have no more than {most} that does not move (--guest-leases), and this asked \
                 for {asked} more"
            ),
            Quota::Tenants => {
                write!(f, "no more than {most} programs of its user share the GPU at once (--guest-programs)")
            }
            Quota::Class => {
                write!(f, "it asked for class {asked}, and another user's program is {most} at best (--guest-class)")
            }
            Quota::Weight => {
                write!(f, "it asked for weight {asked}, and another user's program has {most} at most (--guest-weight)")
            }
        }
    }
}
