//! `CUDA_VISIBLE_DEVICES`: the GPUs that the program sees, and their order.
//!
//! As the CUDA programming guide has it ("CUDA Environment Variables"): a list of numbers, or of UUIDs that may be cut short as long as
//! they fit one GPU only, and only those before the first that fits none are seen. A GPU that is named twice ends the list here too.

/// The numbers of the GPUs that the program sees, by the UUIDs of all.
pub(crate) fn choose(list: Option<&str>, uuids: &[[u8; 16]]) -> Vec<usize> {
    let Some(list) = list else { return (0..uuids.len()).collect() };
    let mut seen = Vec::new();
    for word in list.split(',') {
        let Some(number) = find(word.trim(), uuids).filter(|number| !seen.contains(number)) else { break };
        seen.push(number);
    }
    seen
}

fn find(word: &str, uuids: &[[u8; 16]]) -> Option<usize> {
    if let Some(start) = word.strip_prefix("GPU-") {
        let mut fitting = (0..uuids.len()).filter(|number| text(&uuids[*number]).starts_with(start));
        return fitting.next().filter(|_| fitting.next().is_none());
    }
    word.parse().ok().filter(|number| *number < uuids.len())
}

/// A UUID without `GPU-`.
fn text(uuid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_those_before_the_first_that_is_none() {
        let uuids = [[0x11; 16], [0x12; 16], [0xab; 16]];
        for (list, seen) in [
            (None, vec![0, 1, 2]),
            (Some("1"), vec![1]),
            (Some("2, 0"), vec![2, 0]),
            (Some("0,7,1"), vec![0]),
            (Some("1,1,0"), vec![1]),
            (Some(""), vec![]),
            (Some("-1"), vec![]),
            (Some("GPU-12121212-1212-1212-1212-121212121212"), vec![1]),
            (Some("GPU-ab,GPU-11"), vec![2, 0]),
            (Some("GPU-1"), vec![]),
        ] {
            assert_eq!(choose(list, &uuids), seen, "{list:?}");
        }
    }
}
