//! Messages of `baton cdi` and `baton k8s`.

use crate::catalogue::group;

group! {
    "baton cdi and baton k8s"; "";

    section "baton cdi"; "";

    topic {
        message B1101 no_folder_of_sockets(folder) =
            "there is no {folder} yet; start a coordinator before the containers, as the same user and with the same BATON_FOLDER";
    }
    cause "The file is written all the same. Containers get the folder with the coordinators' sockets, so it has to be there when they \
           start.";
    remedy "Do what the message says.";

    topic {
        message B1102 image_is_unfit(why) =
            "{why}, and Baton's library needs glibc, as CUDA does: use an image with glibc, or leave the device baton.dev/gpu out";
        part B1103 program_uses_musl(program) = "this container's program {program} uses musl";
        part B1104 program_is_static(program, loader) = "this container's program {program} is statically linked, its image has no {loader}";
        part B1105 image_has_no_loader(loader) = "this container's image has no {loader}";
    }
    cause "The engine shows this when it refuses to create a container. A program that does not use the GPU does not need the device \
           ([containers.md](containers.md), *Images*).";
    remedy "Do what the message says.";

    topic {
        message B1106 state_is_unreadable(error) = "the container's state cannot be read: {error}";
    }
    cause "The engine runs `baton cdi hook`, and hands over something else than the OCI runtime specification says.";
    remedy "Write its files again with `baton cdi generate`; if that does not help, this is a bug.";

    section "baton k8s"; "";

    topic {
        message B1110 kubelet_refuses(error) = "kubelet refuses it: {error}";
    }
    cause "Another plugin offers a resource of this name, or this kubelet speaks another version. The plugin ends.";
    remedy "`--domain` gives the resources another name.";

    topic {
        message B1111 coordinator_is_silent(socket) = "the coordinator at {socket} does not answer";
    }
    cause "Its GPU's devices are unhealthy, and kubelet gives them to no pod, until a coordinator answers there.";
    remedy "Start one: `baton serve --gpu N` with the same `BATON_FOLDER`.";

    topic {
        message B1112 no_device_file(path) =
            "there is no {path}; name the folder with the GPU's device files (--dev), or have another part of the system hand over the GPU \
             (--hand-over cdi)";
        message B1113 no_driver_library(folders) = "there is no libcuda.so.1 in {folders}";
    }
    cause "With `--hand-over nodes` a pod gets the GPU's device files and the driver's libraries from the plugin.";
    remedy "Load the driver (`nvidia-modprobe`), or leave it to NVIDIA's CDI file.";

    topic {
        message B1114 no_such_device(device) = "there is no device {device} here";
    }
    cause "kubelet asks for a device of a GPU that has gone.";
    remedy "Start the plugin again.";

    topic {
        message B1115 offers(gpus, replicas) = "{gpus} GPUs, {replicas} replicas of each in each class";
        message B1116 is_registered(resource) = "{resource} is registered";
        message B1117 waits_for_kubelet(resource, socket) = "{resource}: waiting for kubelet at {socket}";
        message B1118 coordinator_answers(socket) = "the coordinator at {socket} answers";
    }
    cause "The plugin's log when all is well.";
}
