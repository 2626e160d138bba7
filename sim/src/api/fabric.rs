//! Memory that the machines of one fabric reach: the simulated device is part of none, as [`super::unsupported`] says it.

use super::unsupported::{in_context_stream, in_process};
use crate::door::doors;

doors! {
    cuDeviceGetCliqueCount: "cuDeviceGetCliqueCount" 13040 () = in_process;
    cuDeviceGetCliqueInfo: "cuDeviceGetCliqueInfo" 13040 () = in_process;
    cuDeviceGetFabricClusterUuid: "cuDeviceGetFabricClusterUuid" 13040 () = in_process;
    cuFabricCpyBatchAsync / cuFabricCpyBatchAsync_ptsz: "cuFabricCpyBatchAsync" 13050 / 13050 () = in_context_stream;
    cuLogicalEndpointAddDevice: "cuLogicalEndpointAddDevice" 13030 () = in_process;
    cuLogicalEndpointBindAddr: "cuLogicalEndpointBindAddr" 13030 () = in_process;
    cuLogicalEndpointBindMem: "cuLogicalEndpointBindMem" 13030 () = in_process;
    cuLogicalEndpointCreate: "cuLogicalEndpointCreate" 13030 () = in_process;
    cuLogicalEndpointDestroy: "cuLogicalEndpointDestroy" 13030 () = in_process;
    cuLogicalEndpointExport: "cuLogicalEndpointExport" 13030 () = in_process;
    cuLogicalEndpointGetLimits: "cuLogicalEndpointGetLimits" 13030 () = in_process;
    cuLogicalEndpointIdRelease: "cuLogicalEndpointIdRelease" 13030 () = in_process;
    cuLogicalEndpointIdReserve: "cuLogicalEndpointIdReserve" 13030 () = in_process;
    cuLogicalEndpointImport: "cuLogicalEndpointImport" 13030 () = in_process;
    cuLogicalEndpointQuery: "cuLogicalEndpointQuery" 13030 () = in_process;
    cuLogicalEndpointUnbind: "cuLogicalEndpointUnbind" 13030 () = in_process;
}
