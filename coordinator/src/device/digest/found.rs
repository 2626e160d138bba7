//! The findings of a scan.

use baton_books::extents::Page;

/// The facts known of some pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Each page that was asked for.
    pub pages: Vec<Page>,
    /// Which pages point where: the page's place among those asked for, and which [`PAGE`](baton_books::extents::PAGE) of the range, counted from
    /// its start; or [`TO_HOST`]. Sorted, each pair once. `None` if there are too many to list.
    pub pointers: Option<Vec<(u32, u32)>>,
}

/// In the place of where a page points: it holds a word that looks like an address of the host.
pub const TO_HOST: u32 = u32::MAX;
