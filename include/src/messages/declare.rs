//! The macro for declarations of messages. It makes the types, their bytes both ways, the number of descriptors that come with each,
//! and, for tests, a strategy that draws every message. So none of these can lack a message, or disagree about one.

/// One direction's messages, in families.
///
/// ```text
/// messages! {
///     /// The direction.
///     FromSomebody {
///         /// The family's subject, and its handler.
///         Family(Type) {
///             /// The message's meaning, and its answer.
///             21 => Kind { field: u32, list: Vec<u64> [MOST] } carries list.len(),
///         }
///     }
/// }
/// ```
///
/// The number is the message's kind on the wire, and its fields follow in their order ([`Field`](super::fields::Field)). `[MOST]`
/// belongs to fields with a length of their own ([`Counted`](super::fields::Counted)). `= since 21 or 0` stands for a field that messages
/// of versions before 21 lack: there it has the value behind `or`. `carries` gives a message's number of descriptors, by its fields; the
/// default is none.
macro_rules! messages {
    (
        $(#[$about:meta])*
        $direction:ident {
            $(
                $(#[$meaning:meta])*
                $family:ident($type:ident) {
                    $(
                        $(#[$doc:meta])*
                        $kind:literal => $message:ident
                        $({
                            $(
                                $(#[$field_doc:meta])*
                                $field:ident: $field_type:ty $([$limit:expr])? $(= since $since:literal or $before:expr)?
                            ),* $(,)?
                        })?
                        $(carries $descriptors:expr)?
                    ),* $(,)?
                }
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $direction {
            $($(#[$meaning])* $family($type),)*
        }

        impl $direction {
            /// Reads a message, and the GPU that it concerns.
            ///
            /// # Errors
            ///
            /// [`Malformed`] gives the reason.
            pub fn decode(message: &[u8]) -> Result<(GpuNumber, Self), Malformed> {
                Self::decode_in(message, Version::NOW)
            }

            /// The same for a message in this version.
            ///
            /// # Errors
            ///
            /// [`Malformed`] gives the reason.
            pub fn decode_in(message: &[u8], version: Version) -> Result<(GpuNumber, Self), Malformed> {
                let (kind, gpu, mut reader) = Reader::new(message, version)?;
                #[deny(unreachable_patterns, reason = "every kind has a number of its own")]
                let decoded = match kind {
                    $($(
                        $kind => Self::$family($type::$message $({
                            $($field: fields::read!(
                                &mut reader, $field: $field_type $([$limit])? $(= since $since or $before)?
                            )),*
                        })?),
                    )*)*
                    kind => return Err(Malformed::Kind(kind)),
                };
                reader.end()?;
                Ok((gpu, decoded))
            }
        }

        impl Message for $direction {
            fn encode_in(&self, gpu: GpuNumber, version: Version) -> Vec<u8> {
                match self {
                    $(Self::$family(message) => message.encode_in(gpu, version),)*
                }
            }

            fn descriptors(&self) -> usize {
                match self {
                    $(Self::$family(message) => message.descriptors(),)*
                }
            }
        }

        $(
            $(#[$meaning])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub enum $type {
                $($(#[$doc])* $message $({ $($(#[$field_doc])* $field: $field_type),* })?,)*
            }

            impl Message for $type {
                fn encode_in(&self, gpu: GpuNumber, version: Version) -> Vec<u8> {
                    match self {
                        $(Self::$message $({ $($field),* })? => {
                            #[allow(unused_mut, reason = "some messages have no fields")]
                            let mut writer = Writer::new($kind, gpu, version);
                            $($(fields::write!(
                                &mut writer, $field: $field_type $([$limit])? $(= since $since or $before)?
                            );)*)?
                            writer.finish()
                        })*
                    }
                }

                fn descriptors(&self) -> usize {
                    #[allow(unused_variables, reason = "most messages carry none")]
                    match self {
                        $(Self::$message $({ $($field),* })? => 0 $(+ $descriptors)?,)*
                    }
                }
            }

            impl From<$type> for $direction {
                fn from(message: $type) -> Self {
                    Self::$family(message)
                }
            }

            $(const _: () = assert!(HEADER $($(+ fields::most!($field_type $([$limit])?))*)? <= MAX_MESSAGE);)*
        )*

        #[cfg(test)]
        impl tests::Drawn for $direction {
            const KINDS: &[u32] = &[$($($kind),*),*];

            fn any() -> BoxedStrategy<Self> {
                let strategies = [$($(
                    (Just(()), $($(fields::any!($field_type $([$limit])?),)*)?)
                        .prop_map(|((), $($($field,)*)?)| Self::$family($type::$message $({ $($field),* })?))
                        .boxed()
                ),*),*];
                Union::new(strategies).boxed()
            }
        }
    };
}

pub(super) use messages;
