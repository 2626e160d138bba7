use proptest::prelude::*;

use super::*;
use crate::ribbon::ribbon;
use crate::strategy::{heard, history};
use crate::summary::Summary;
use crate::timeline::Timeline;

/// Parses a page strictly, as XML.
fn parsed(page: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

fn made(timeline: &Timeline, title: &str) -> String {
    let time = timeline.since..timeline.now;
    let summary = Summary::within(timeline, time.clone());
    page(&ribbon(timeline, &summary, &time, 64), &summary, &Caption { title, line: "GPU-0" })
}

#[test]
fn an_empty_page_says_so() {
    let page = made(&heard(Vec::new()), "Who had the GPU");
    assert!(page.contains("No program used the GPU in this time."));
    parsed(&page);
}

#[test]
fn every_value_of_the_template_is_filled_in_once_and_a_value_is_not_looked_at_again() {
    let page = made(&heard(Vec::new()), "{{script}}");
    assert_eq!(page.matches("{{script}}").count(), 2, "the title, and the heading");
    assert!(!page.replace("{{script}}", "").contains("{{"));
}

#[test]
fn a_page_loads_nothing() {
    let page = made(&heard(Vec::new()), "Who had the GPU").replace("http://www.w3.org/1999/xhtml", "");
    for word in ["http:", "https:", "src=", "href=", "@import", "url(\"", "//cdn"] {
        assert!(!page.contains(word), "{word}");
    }
}

proptest! {
    /// A page is well-formed for any names of programs, and contains no element or script from a name.
    #[test]
    fn every_page_is_well_formed(history in history(100)) {
        let mut timeline = Timeline::default();
        timeline.see(&history);
        let page = made(&timeline, "</title><script>");
        let parsed = parsed(&page);
        let count = |name: &str| parsed.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", name))).count();
        prop_assert_eq!((count("script"), count("b"), count("html")), (1, 0, 1));
        prop_assert!(!page.contains("]]></script>") && page.matches("</script").count() == 1);
    }
}
