//! The driver's errors.

use crate::catalogue::group;

group! {
    "The driver's errors"; "These can appear anywhere.";

    section ""; "";

    topic {
        message B1501 driver_answered(call, code, meaning) = "the driver answered {call} with CUDA error {code}{meaning}";
        part B1502 OUT_OF_DEVICE_MEMORY = " (out of device memory)";
        part B1503 NO_GPU_HERE = " (no GPU)";
        part B1504 NOT_SUPPORTED = " (not supported)";
        part B1505 SYSTEM_NOT_READY = " (the system is not ready)";
        part B1506 VERSIONS_DIFFER = " (the driver's library and its kernel module are of different versions)";
        part B1507 NO_COMPATIBILITY = " (this GPU does not take the compatibility library)";
        part B1508 UNKNOWN_ERROR = " (unknown; is the driver loaded and the GPU healthy?)";
    }
    cause "The driver refused a call, named with its error number (`cuda.h` explains them).";
    remedy "Out of memory: others use the GPU, lower `--arena`. No GPU (100): is the device visible (`nvidia-smi`, \
            `CUDA_VISIBLE_DEVICES`)? \
            Not supported (801): Baton needs a driver that can export memory; see `baton doctor`. Unknown (999): reload the driver, or \
            restart the machine. `baton run`, `baton serve` and `baton doctor` say what to do next where that is known.";

    topic {
        around B1509 with_advice(error, advice) = "{error}; {advice}";
        part B1510 INSTALL_THE_DRIVER =
            "install NVIDIA's driver; `--driver sim` uses the simulated GPU, `--driver PATH` another driver";
        message B1511 library_does_not_open(library, why) = "{library}: {why}";
    }
    cause "No driver or no GPU was found.";
    remedy "Do what the message says. In a container, it needs the GPU too (`--gpus all`).";

    topic {
        part B1512 START_THE_FABRIC_MANAGER =
            "start the fabric manager (`systemctl start nvidia-fabricmanager`), which GPUs behind NVSwitch wait for; its version has to be the \
             driver's";
    }
    cause "Error 802. GPUs that NVSwitch connects (HGX, DGX) do nothing before the fabric manager has set the switches up. It starts only \
           if \
           its package has exactly the driver's version. Right after the machine has started it may need a minute.";

    topic {
        part B1513 RESTART_THE_MACHINE =
            "restart the machine, or reload NVIDIA's kernel modules: the driver was upgraded, and its library no longer fits the module that \
             runs (`cat /proc/driver/nvidia/version`)";
    }
    cause "Error 803. The old kernel module runs until no process uses the GPU and it is unloaded.";
    remedy "In a container, the library comes from the host: restart the container after the machine.";

    topic {
        part B1514 DROP_THE_COMPATIBILITY_LIBRARY =
            "take the compatibility library (`cuda-compat`) out of LD_LIBRARY_PATH and out of the container: only data-centre GPUs take it; a \
             newer driver is what this GPU needs";
    }
    cause "Error 804. The library for forward compatibility was found before the driver's own. An image for a newer CUDA has it in \
           `/usr/local/cuda/compat`.";

    topic {
        message B1515 no_such_gpu(asked, count) = "there is no GPU {asked}: this machine has {count}, counted from 0";
    }
    cause "`CUDA_VISIBLE_DEVICES` hides GPUs and changes their numbers.";
    remedy "Give another `--gpu`.";
}
