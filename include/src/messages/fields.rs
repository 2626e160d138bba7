//! The form of a message's field on the wire, by its type.

use alloc::string::String;
use alloc::vec::Vec;

#[cfg(test)]
use proptest::prelude::*;

use super::{
    ArrivalStats, Channels, DriverKind, Elsewhere, ExtentId, FileId, Full, GateState, HeldExtent, MAX_CHANNELS,
    MAX_ELSEWHERE, Mapping, ProcessId, Refusal,
};
use crate::class::Class;
use crate::memory::SizeClass;
use crate::resource_manager::Objects;
use crate::scheduling::{Change, Scheduling};
use crate::wire::{Malformed, Reader, Writer};

/// A type that a field can have.
pub(super) trait Field: Sized + 'static {
    /// The least and the most bytes of a value.
    const LEAST: usize;
    const MOST: usize;

    fn write(&self, writer: &mut Writer);

    /// Reads a field of this name.
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed>;

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self>;
}

/// A type of fields with a length of their own, and a limit to that.
pub(super) trait Counted: Sized + 'static {
    /// The most bytes that one item takes; the length takes four.
    const MOST_OF_ONE: usize;

    fn write(&self, writer: &mut Writer, limit: usize);

    fn read(reader: &mut Reader<'_>, name: &'static str, limit: usize) -> Result<Self, Malformed>;

    #[cfg(test)]
    fn any(limit: usize) -> BoxedStrategy<Self>;
}

/// Writes a field by its declared type.
macro_rules! write {
    ($writer:expr, $field:ident: $type:ty) => {
        <$type as fields::Field>::write($field, $writer)
    };
    ($writer:expr, $field:ident: $type:ty [$limit:expr]) => {
        <$type as fields::Counted>::write($field, $writer, $limit)
    };
    ($writer:expr, $field:ident: $type:ty = since $since:literal or $before:expr) => {
        if $writer.is_since($since) {
            <$type as fields::Field>::write($field, $writer)
        }
    };
}

/// Reads a field by its declared type.
macro_rules! read {
    ($reader:expr, $field:ident: $type:ty) => {
        <$type as fields::Field>::read($reader, stringify!($field))?
    };
    ($reader:expr, $field:ident: $type:ty [$limit:expr]) => {
        <$type as fields::Counted>::read($reader, stringify!($field), $limit)?
    };
    ($reader:expr, $field:ident: $type:ty = since $since:literal or $before:expr) => {
        if $reader.is_since($since) { <$type as fields::Field>::read($reader, stringify!($field))? } else { $before }
    };
}

/// The least bytes of a field by its declared type.
macro_rules! least {
    ($type:ty) => {
        <$type as fields::Field>::LEAST
    };
    ($type:ty [$limit:expr]) => {
        4
    };
}

/// The most bytes of a field by its declared type.
macro_rules! most {
    ($type:ty) => {
        <$type as fields::Field>::MOST
    };
    ($type:ty [$limit:expr]) => {
        4 + $limit * <$type as fields::Counted>::MOST_OF_ONE
    };
}

/// Draws a field by its declared type.
#[cfg(test)]
macro_rules! any {
    ($type:ty) => {
        <$type as fields::Field>::any()
    };
    ($type:ty [$limit:expr]) => {
        <$type as fields::Counted>::any($limit)
    };
}

#[cfg(test)]
pub(super) use any;
pub(super) use {most, read, write};

/// The macros above mean the same here as in the module of messages.
use crate::messages::fields;

/// Integers in little-endian bytes.
macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Field for $type {
            const LEAST: usize = size_of::<Self>();
            const MOST: usize = size_of::<Self>();

            fn write(&self, writer: &mut Writer) {
                writer.bytes(&self.to_le_bytes());
            }

            fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, Malformed> {
                reader.array().map(Self::from_le_bytes)
            }

            #[cfg(test)]
            fn any() -> BoxedStrategy<Self> {
                proptest::prelude::any::<Self>().boxed()
            }
        })*
    };
}

integers!(u8, u32, u64);

/// A GPU's UUID, a key, or a handle of the driver's.
impl<const N: usize> Field for [u8; N] {
    const LEAST: usize = N;
    const MOST: usize = N;

    fn write(&self, writer: &mut Writer) {
        writer.bytes(self);
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, Malformed> {
        reader.array()
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        proptest::prelude::any::<Self>().boxed()
    }
}

impl Field for bool {
    const LEAST: usize = 4;
    const MOST: usize = 4;

    fn write(&self, writer: &mut Writer) {
        writer.u32((*self).into());
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
        match reader.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::OutOfRange { field: name, value: value.into() }),
        }
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        proptest::prelude::any::<Self>().boxed()
    }
}

/// Types whose values have a number each. A value that the list lacks does not compile.
macro_rules! enumerations {
    ($($type:ident { $($value:ident),* })*) => {
        $(impl Field for $type {
            const LEAST: usize = 4;
            const MOST: usize = 4;

            fn write(&self, writer: &mut Writer) {
                match self {
                    $(Self::$value)|* => writer.u32(*self as u32),
                }
            }

            fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
                let number = reader.u32()?;
                let value = [$(Self::$value),*].into_iter().find(|value| *value as u32 == number);
                value.ok_or(Malformed::OutOfRange { field: name, value: number.into() })
            }

            #[cfg(test)]
            fn any() -> BoxedStrategy<Self> {
                prop::sample::select(&[$(Self::$value),*][..]).boxed()
            }
        })*
    };
}

enumerations! {
    Class { Latency, Normal, Batch }
    DriverKind { System, Simulated, File }
    Refusal { Version, OtherGpu, Busy, Failed, Malformed }
    Full { Arena, HostPool, Held }
    Mapping { Away, Prepared, Mapped }
    GateState { Closed, Held, Open }
}

impl Field for SizeClass {
    const LEAST: usize = 4;
    const MOST: usize = 4;

    fn write(&self, writer: &mut Writer) {
        writer.u32(self.index() as u32);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
        let index = reader.u32()?;
        Self::of_index(index as usize).ok_or(Malformed::OutOfRange { field: name, value: index.into() })
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        prop::sample::select(&Self::ALL[..]).boxed()
    }
}

impl Field for ExtentId {
    const LEAST: usize = u32::LEAST;
    const MOST: usize = u32::MOST;

    fn write(&self, writer: &mut Writer) {
        self.0.write(writer);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
        u32::read(reader, name).map(Self)
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        u32::any().prop_map(Self).boxed()
    }
}

/// A flag for the presence of a value, and then the value.
impl<T: Field + core::fmt::Debug + Clone> Field for Option<T> {
    const LEAST: usize = bool::LEAST;
    const MOST: usize = bool::MOST + T::MOST;

    fn write(&self, writer: &mut Writer) {
        self.is_some().write(writer);
        if let Some(value) = self {
            value.write(writer);
        }
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
        bool::read(reader, name)?.then(|| T::read(reader, name)).transpose()
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        prop::option::of(T::any()).boxed()
    }
}

impl<A: Field + core::fmt::Debug, B: Field + core::fmt::Debug> Field for (A, B) {
    const LEAST: usize = A::LEAST + B::LEAST;
    const MOST: usize = A::MOST + B::MOST;

    fn write(&self, writer: &mut Writer) {
        self.0.write(writer);
        self.1.write(writer);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
        Ok((A::read(reader, name)?, B::read(reader, name)?))
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        (A::any(), B::any()).boxed()
    }
}

impl<A: Field + core::fmt::Debug, B: Field + core::fmt::Debug, C: Field + core::fmt::Debug> Field for (A, B, C) {
    const LEAST: usize = A::LEAST + B::LEAST + C::LEAST;
    const MOST: usize = A::MOST + B::MOST + C::MOST;

    fn write(&self, writer: &mut Writer) {
        self.0.write(writer);
        self.1.write(writer);
        self.2.write(writer);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
        Ok((A::read(reader, name)?, B::read(reader, name)?, C::read(reader, name)?))
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        (A::any(), B::any(), C::any()).boxed()
    }
}

/// The length in bytes, and the bytes. A text beyond its limit is cut.
impl Counted for String {
    const MOST_OF_ONE: usize = 1;

    fn write(&self, writer: &mut Writer, limit: usize) {
        writer.sized(&self.as_bytes()[..self.floor_char_boundary(limit)]);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str, limit: usize) -> Result<Self, Malformed> {
        reader.text(name, limit)
    }

    #[cfg(test)]
    fn any(limit: usize) -> BoxedStrategy<Self> {
        let most = (limit / char::MAX.len_utf8()).min(200);
        prop::collection::vec(proptest::prelude::any::<char>(), 0..=most).prop_map(String::from_iter).boxed()
    }
}

/// The number of items, and each item.
impl<T: Field + core::fmt::Debug> Counted for Vec<T> {
    const MOST_OF_ONE: usize = T::MOST;

    fn write(&self, writer: &mut Writer, limit: usize) {
        debug_assert!(self.len() <= limit, "messages are built within their limits");
        writer.u32(self.len() as u32);
        self.iter().for_each(|item| item.write(writer));
    }

    fn read(reader: &mut Reader<'_>, name: &'static str, limit: usize) -> Result<Self, Malformed> {
        reader.list(name, limit, T::LEAST, |reader| T::read(reader, name))
    }

    #[cfg(test)]
    fn any(limit: usize) -> BoxedStrategy<Self> {
        prop::collection::vec(T::any(), 0..=limit).boxed()
    }
}

/// Structures, field by field. A field that the list lacks does not compile.
macro_rules! structures {
    ($($type:ident { $($field:ident: $field_type:ty $([$limit:expr])?),* })*) => {
        $(impl Field for $type {
            const LEAST: usize = 0 $(+ least!($field_type $([$limit])?))*;
            const MOST: usize = 0 $(+ most!($field_type $([$limit])?))*;

            fn write(&self, writer: &mut Writer) {
                let Self { $($field),* } = self;
                $(write!(writer, $field: $field_type $([$limit])?);)*
            }

            fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, Malformed> {
                Ok(Self { $($field: read!(reader, $field: $field_type $([$limit])?)),* })
            }

            #[cfg(test)]
            fn any() -> BoxedStrategy<Self> {
                ($(any!($field_type $([$limit])?),)*).prop_map(|($($field,)*)| Self { $($field),* }).boxed()
            }
        })*
    };
}

structures! {
    ArrivalStats {
        first_extent_micros: u64,
        first_call_micros: u64,
        end_micros: u64,
        waits: u64,
        waited_micros: u64,
        opaque: u64
    }
    ProcessId { namespace: u64, number: u32 }
    FileId { device: u64, inode: u64 }
    HeldExtent { id: ExtentId, at: u64, class: SizeClass, mapping: Mapping }
    Change { class: Option<Class>, weight: Option<u32>, slo_micros: Option<u64>, suspended: Option<bool> }
    Elsewhere { channels: Vec<(u32, u32)> [MAX_ELSEWHERE] }
    Objects {
        client: u32,
        subdevice: u32,
        channels: Vec<u32> [MAX_CHANNELS],
        compute: Vec<u32> [MAX_CHANNELS],
        groups: Vec<u32> [MAX_CHANNELS]
    }
}

/// A scheduling that makes no sense is refused.
impl Field for Scheduling {
    const LEAST: usize = Class::LEAST + u32::LEAST + u64::LEAST;
    const MOST: usize = Class::MOST + u32::MOST + u64::MOST;

    fn write(&self, writer: &mut Writer) {
        let Self { class, weight, slo_micros } = self;
        class.write(writer);
        weight.write(writer);
        slo_micros.write(writer);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
        let class = Class::read(reader, name)?;
        let scheduling = Self { class, weight: reader.u32()?, slo_micros: reader.u64()? };
        match scheduling.check() {
            Ok(()) => Ok(scheduling),
            Err(_) => Err(Malformed::OutOfRange { field: name, value: scheduling.slo_micros }),
        }
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        use crate::scheduling::{MAX_SLO_MICROS, MAX_WEIGHT};
        let drawn = (Class::any(), 1..=MAX_WEIGHT, 0..=MAX_SLO_MICROS);
        let fit = |(class, weight, slo_micros)| match class {
            Class::Latency => Self { class, weight: 1, slo_micros },
            Class::Normal | Class::Batch => Self { class, weight, slo_micros: 0 },
        };
        drawn.prop_map(fit).boxed()
    }
}

/// The kind, and the parts that belong to it.
impl Field for Channels {
    const LEAST: usize = 4;
    const MOST: usize = 4 + if Objects::MOST > u32::MOST { Objects::MOST } else { u32::MOST };

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::None => writer.u32(0),
            Self::Simulated { process } => {
                writer.u32(1);
                process.write(writer);
            }
            Self::ResourceManager(objects) => {
                writer.u32(2);
                objects.write(writer);
            }
        }
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, Malformed> {
        match reader.u32()? {
            0 => Ok(Self::None),
            1 => Ok(Self::Simulated { process: reader.u32()? }),
            2 => Objects::read(reader, name).map(Self::ResourceManager),
            value => Err(Malformed::OutOfRange { field: name, value: value.into() }),
        }
    }

    #[cfg(test)]
    fn any() -> BoxedStrategy<Self> {
        prop_oneof![
            Just(Self::None),
            u32::any().prop_map(|process| Self::Simulated { process }),
            Objects::any().prop_map(Self::ResourceManager),
        ]
        .boxed()
    }
}
