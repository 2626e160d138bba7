//! The exports: a file per family of calls, each with its rows on top and its functions below.

use crate::door::Row;

mod abi;
mod arguments;
mod context;
mod control;
mod copies;
mod copies_old;
mod copy_plan;
mod device;
mod events;
mod fabric;
mod fills;
mod functions;
mod graph_exec;
mod graph_memory;
mod graph_nodes;
mod graph_parts;
mod graphs;
mod host_memory;
mod init;
mod ipc;
mod launches;
mod libraries;
mod memory;
mod modules;
mod multicast;
mod node_work;
mod occupancy;
mod pointers;
mod pools;
mod ranges;
mod stream_capture;
mod stream_memory;
mod stream_words;
mod streams;
mod tensor_maps;
mod unsupported;
mod vmm;

#[cfg(test)]
mod tests;

/// Every export.
pub(crate) fn rows() -> Vec<Row> {
    let mut table = Vec::new();
    let families = [
        context::rows,
        copies::rows,
        copies_old::rows,
        device::rows,
        events::rows,
        fabric::rows,
        fills::rows,
        functions::rows,
        graph_exec::rows,
        graph_memory::rows,
        graph_nodes::rows,
        graphs::rows,
        host_memory::rows,
        init::rows,
        ipc::rows,
        launches::rows,
        libraries::rows,
        memory::rows,
        modules::rows,
        multicast::rows,
        occupancy::rows,
        pointers::rows,
        pools::rows,
        ranges::rows,
        streams::rows,
        stream_capture::rows,
        stream_memory::rows,
        stream_words::rows,
        tensor_maps::rows,
        unsupported::rows,
        vmm::rows,
    ];
    for family in families {
        family(&mut table);
    }
    table
}
