//! The names of devices, and the choice of the devices that are given first.

use baton_contract::class::Class;

/// The text between a GPU's name and a replica's number.
const SEPARATOR: &str = "::";

/// Returns the name of a GPU's replica, as kubelet knows it. (At most 63 characters: `Device.ID` in `v1beta1.proto`.)
pub(crate) fn id(gpu: &str, replica: u32) -> String {
    format!("{gpu}{SEPARATOR}{replica}")
}

/// Returns the GPU of a replica.
pub(crate) fn gpu_of(id: &str) -> &str {
    id.split_once(SEPARATOR).map_or(id, |(gpu, _)| gpu)
}

/// Returns the name of a program that has a device: unlike the device's name it fits a line, and tells the class.
pub(crate) fn name(class: Class, id: &str) -> String {
    let replica = id.split_once(SEPARATOR).map_or("", |(_, replica)| replica);
    format!("{}.{replica}", class.word())
}

/// Returns the class and the replica of a program of this name. If several have one name, the coordinator calls the second `NAME-2`.
pub(crate) fn named(name: &str) -> Option<(Class, u32)> {
    let (class, replica) = name.split_once('.')?;
    let replica = replica.split_once('-').map_or(replica, |(replica, _)| replica);
    Some((class.parse().ok()?, replica.parse().ok()?))
}

/// Chooses devices for a container from the available ones: those that it must have, and others on as many different GPUs as possible,
/// the emptiest first. `used` returns the bytes of a GPU that its programs have.
pub(crate) fn preferred(available: &[String], must: &[String], size: usize, used: impl Fn(&str) -> u64) -> Vec<String> {
    let mut chosen: Vec<String> = must.to_vec();
    let mut rest: Vec<&String> = available.iter().filter(|id| !must.contains(id)).collect();
    while chosen.len() < size {
        let taken = |id: &str| chosen.iter().filter(|other| gpu_of(other) == gpu_of(id)).count();
        let next = rest.iter().enumerate().min_by_key(|(_, id)| (taken(id), used(gpu_of(id)), id.as_str()));
        let Some((at, _)) = next else { break };
        chosen.push(rest.remove(at).clone());
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_replica_of_a_gpu() {
        let gpu = "GPU-01020304-0506-0708-090a-0b0c0d0e0fff";
        let id = id(gpu, 4_294_967_295);
        assert_eq!(gpu_of(&id), gpu);
        assert!(id.len() <= 63, "{id}");
        assert_eq!(named(&name(Class::Batch, &id)), Some((Class::Batch, u32::MAX)));
        assert_eq!(named("normal.3-2"), Some((Class::Normal, 3)));
        assert_eq!([named("batch"), named("urgent.1"), named("batch.x")], [None; 3]);
    }

    #[test]
    fn a_container_gets_the_emptiest_gpu_and_several_different_ones() {
        let all: Vec<String> = ["a", "b", "c"].iter().flat_map(|gpu| (0..2).map(|replica| id(gpu, replica))).collect();
        let used = |gpu: &str| match gpu {
            "a" => 30,
            "b" => 10,
            _ => 20,
        };
        assert_eq!(preferred(&all, &[], 1, used), ["b::0"]);
        assert_eq!(preferred(&all, &[], 4, used), ["b::0", "c::0", "a::0", "b::1"]);
        let must = [id("b", 1)];
        assert_eq!(preferred(&all, &must, 2, used), ["b::1", "c::0"]);
        assert_eq!(preferred(&all[..1], &[], 3, used), ["a::0"], "no more than there are");
    }
}
