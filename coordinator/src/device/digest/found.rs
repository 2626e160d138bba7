//! The findings of a scan.

use baton_books::extents::Page;

/// The facts known of some pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The pages that were asked for.
    pub pages: Vec<Page>,
    /// Pairs of pages and pointers: the page's index among those asked for, and the [`PAGE`](baton_books::extents::PAGE) of the range
    /// that it points to, counted from the range's start; or [`TO_HOST`]. Sorted, each pair once. `None` if there are too many to list.
    pub pointers: Option<Vec<(u32, u32)>>,
}

/// Marks a page with a word that looks like an address of the host, in place of the target.
pub const TO_HOST: u32 = u32::MAX;
