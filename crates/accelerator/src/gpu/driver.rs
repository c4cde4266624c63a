//! Card by the crate wgpu-core, which drives it through Vulkan.
//!
//! wgpu-core checks all calls and shaders, so nothing that a kernel does can reach memory other than its buffers. It hands out
//! numbers of its objects, which the types here own.
//!
//! Unsafe code: mapped memory as slices.

#![allow(unsafe_code)]

use super::causes::chain;
use super::shader;
use super::watch::Watch;
use crate::card::{Access, Binding, Card, Limits, Pass, Source};
use crate::cpu::Cpu;
use crate::device::Device as _;
use crate::error::Error;
use std::borrow::Cow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use wgpu_core::binding_model::{
    BindGroupDescriptor, BindGroupEntry, BindGroupLayoutDescriptor, BindingResource, BufferBinding,
    PipelineLayoutDescriptor,
};
use wgpu_core::command::ComputePassDescriptor;
use wgpu_core::device::HostMap;
use wgpu_core::global::Global;
use wgpu_core::id::{
    AdapterId, BindGroupId, BindGroupLayoutId, BufferId, CommandEncoderId, ComputePipelineId, DeviceId,
    PipelineLayoutId, QueueId, ShaderModuleId,
};
use wgpu_core::pipeline::{
    ComputePipelineDescriptor, ProgrammableStageDescriptor, ShaderModuleDescriptor, ShaderModuleSource,
};
use wgpu_core::resource::BufferMapOperation;
use wgpu_types::error::{ErrorType, WebGpuError};
use wgpu_types::{
    BindGroupLayoutEntry, BindingType, BufferBindingType, BufferUsages, DeviceType, Features, ShaderStages,
};

/// Device that was opened, and its queue.
pub(super) struct Driver {
    name: String,
    global: Arc<Global>,
    device: DeviceId,
    queue: QueueId,
    limits: Limits,
    /// True if the device's memory is that of the system.
    uses_system_memory: bool,
    watch: Watch,
}

impl Driver {
    /// Opens the device of an adapter.
    ///
    /// # Errors
    /// [`Error::Lost`] if the driver refuses, [`Error::Memory`].
    pub(super) fn open(name: &str, global: &Arc<Global>, adapter: AdapterId) -> Result<Driver, Error> {
        let (info, features) = (global.adapter_get_info(adapter), global.adapter_features(adapter));
        let uses_system_memory = matches!(info.device_type, DeviceType::IntegratedGpu | DeviceType::Cpu);
        let shares_memory = uses_system_memory && features.contains(Features::MAPPABLE_PRIMARY_BUFFERS);
        let limits = global.adapter_limits(adapter);
        let mut wanted = Features::IMMEDIATES;
        wanted.set(Features::MAPPABLE_PRIMARY_BUFFERS, shares_memory);
        let descriptor = wgpu_types::DeviceDescriptor {
            label: None,
            required_features: wanted,
            required_limits: limits.clone(),
            memory_hints: wgpu_types::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let opened = global.adapter_request_device(adapter, &descriptor, None, None);
        let (device, queue) = opened.map_err(|error| lost(name, chain(&error)))?;
        let watch = Watch::start(global, device).map_err(|message| lost(name, message))?;
        let buffer_bytes = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let limits = Limits {
            buffer_bytes: usize::try_from(buffer_bytes).unwrap_or(usize::MAX) / 4 * 4,
            groups: limits.max_compute_workgroups_per_dimension,
            shares_memory,
        };
        let (name, global) = (name.to_owned(), Arc::clone(global));
        Ok(Driver { name, global, device, queue, limits, uses_system_memory, watch })
    }

    /// Lets passes use no mapped memory, as if the device had memory of its own.
    pub(super) fn separate_memory(&mut self) {
        self.limits.shares_memory = false;
    }

    /// Lowers the greatest size of a buffer.
    pub(super) fn limit_buffers(&mut self, bytes: usize) {
        self.limits.buffer_bytes = self.limits.buffer_bytes.min(bytes.next_multiple_of(4));
    }

    /// Takes the device away, as a driver does that resets a card.
    #[cfg(test)]
    pub(super) fn lose(&self) {
        self.global.device_destroy(self.device);
    }

    /// Returns an error of the crate as one of the session.
    fn failed(&self, error: &impl WebGpuError, bytes: usize) -> Error {
        match error.webgpu_error_type() {
            ErrorType::OutOfMemory => self.no_memory(bytes),
            ErrorType::DeviceLost | ErrorType::Validation | ErrorType::Internal => self.lost(chain(error)),
        }
    }

    fn no_memory(&self, bytes: usize) -> Error {
        let remedy = "ask for smaller or fewer blocks";
        Error::Memory { device: self.name.clone(), bytes: bytes as u64, remedy }
    }

    /// Returns the loss of the device, with the driver's message if it has told one.
    fn lost(&self, message: String) -> Error {
        lost(&self.name, self.watch.loss().filter(|told| !told.is_empty()).unwrap_or(message))
    }

    /// Returns an error if there is one.
    fn check(&self, error: Option<impl WebGpuError>) -> Result<(), Error> {
        error.map_or(Ok(()), |error| Err(self.failed(&error, 0)))
    }

    fn layout(&self, bindings: &[Binding]) -> Result<BindGroupLayoutId, Error> {
        let entry = |(number, binding): (usize, &Binding)| BindGroupLayoutEntry {
            binding: number as u32,
            visibility: ShaderStages::COMPUTE,
            ty: BindingType::Buffer {
                ty: match binding {
                    Binding::Read => BufferBindingType::Storage { read_only: true },
                    Binding::Write => BufferBindingType::Storage { read_only: false },
                    Binding::Uniform => BufferBindingType::Uniform,
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<BindGroupLayoutEntry> = bindings.iter().enumerate().map(entry).collect();
        let descriptor = BindGroupLayoutDescriptor { label: None, entries: Cow::Owned(entries) };
        let (id, error) = self.global.device_create_bind_group_layout(self.device, &descriptor, None);
        self.check(error).map(|()| id).inspect_err(|_| self.global.bind_group_layout_drop(id))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.watch.end() {
            self.global.queue_drop(self.queue);
            self.global.device_drop(self.device);
        }
        // Else it is leaked: dropping the queue would wait for the device without a limit.
    }
}

/// Memory of the device.
pub(super) struct Buffer {
    global: Arc<Global>,
    id: BufferId,
    bytes: usize,
    access: Access,
    /// First byte while the host may use the memory.
    mapped: Option<NonNull<u8>>,
}

// SAFETY: the mapping belongs to the buffer alone, which lends it by the rules of references.
unsafe impl Send for Buffer {}
// SAFETY: shared references only read.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.global.buffer_drop(self.id);
    }
}

/// Compiled pass.
pub(super) struct Program {
    global: Arc<Global>,
    pipeline: ComputePipelineId,
    layout: BindGroupLayoutId,
    group: u32,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.global.compute_pipeline_drop(self.pipeline);
        self.global.bind_group_layout_drop(self.layout);
    }
}

/// Commands that are being recorded, and the lists of buffers that they use.
pub(super) struct Commands {
    global: Arc<Global>,
    encoder: CommandEncoderId,
    groups: Vec<BindGroupId>,
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.global.command_encoder_drop(self.encoder);
        self.groups.iter().for_each(|group| self.global.bind_group_drop(*group));
    }
}

/// End of commands that were submitted.
pub(super) struct Fence {
    /// Messages about the buffers that the host gets back, and the number of these that are missing.
    returned: Receiver<Result<(), String>>,
    missing: usize,
}

/// Objects that are needed only while a pipeline is made.
struct Making<'a> {
    global: &'a Global,
    module: ShaderModuleId,
    layout: Option<PipelineLayoutId>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.global.shader_module_drop(self.module);
        self.layout.into_iter().for_each(|layout| self.global.pipeline_layout_drop(layout));
    }
}

impl Card for Driver {
    type Buffer = Buffer;
    type Program = Program;
    type Commands = Commands;
    type Fence = Fence;

    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn available_bytes(&self) -> Option<u64> {
        self.uses_system_memory.then(|| Cpu.memory_bytes())?
    }

    fn allocate(&self, bytes: usize, access: Access) -> Result<Buffer, Error> {
        let mut usage = match access {
            Access::Device => BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            Access::Uniform => BufferUsages::UNIFORM | BufferUsages::COPY_DST,
            Access::Upload => BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC,
            Access::Download => BufferUsages::MAP_READ | BufferUsages::COPY_DST,
        };
        usage.set(
            BufferUsages::STORAGE,
            access == Access::Device || self.limits.shares_memory && access != Access::Uniform,
        );
        let is_mapped = access == Access::Upload;
        let descriptor = wgpu_types::BufferDescriptor {
            label: None,
            size: bytes as u64,
            usage,
            mapped_at_creation: is_mapped,
        };
        let (id, error) = self.global.device_create_buffer(self.device, &descriptor, None);
        let mut buffer = Buffer { global: Arc::clone(&self.global), id, bytes, access, mapped: None };
        error.map_or(Ok(()), |error| Err(self.failed(&error, bytes)))?;
        if is_mapped {
            self.take_back(&mut buffer)?;
        }
        Ok(buffer)
    }

    fn program(&self, pass: &Pass<'_>) -> Result<Program, Error> {
        let text = match pass.source {
            Source::Fir => include_str!("fir.wgsl"),
            Source::Fft => include_str!("fft.wgsl"),
            Source::Sar => include_str!("sar.wgsl"),
            Source::Text(text) => text,
        };
        let source = ShaderModuleSource::Wgsl(Cow::Borrowed(text));
        let descriptor = ShaderModuleDescriptor { label: None, runtime_checks: shader::checks() };
        let (module, error) = self.global.device_create_shader_module(self.device, &descriptor, source, None);
        let mut making = Making { global: &self.global, module, layout: None };
        self.check(error)?;
        let layout = self.layout(pass.bindings)?;
        let immediate_size = 4 * pass.parameters as u32;
        let descriptor = PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: Cow::Owned(vec![Some(layout)]),
            immediate_size,
        };
        let (pipeline_layout, error) =
            self.global.device_create_pipeline_layout(self.device, &descriptor, None);
        making.layout = Some(pipeline_layout);
        let descriptor = ComputePipelineDescriptor {
            label: None,
            layout: Some(pipeline_layout),
            stage: ProgrammableStageDescriptor {
                module,
                entry_point: Some(Cow::Borrowed(pass.entry)),
                constants: Default::default(),
                zero_initialize_workgroup_memory: true,
            },
            cache: None,
        };
        let (pipeline, failure) = self.global.device_create_compute_pipeline(self.device, &descriptor, None);
        let program = Program { global: Arc::clone(&self.global), pipeline, layout, group: pass.group };
        self.check(error)?;
        self.check(failure)?;
        Ok(program)
    }

    fn write(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), Error> {
        let written = self.global.queue_write_buffer(self.queue, buffer.id, 0, bytes);
        written.map_err(|error| self.failed(&error, bytes.len()))
    }

    fn commands(&self) -> Result<Commands, Error> {
        let (encoder, error) =
            self.global.device_create_command_encoder(self.device, &Default::default(), None);
        let commands = Commands { global: Arc::clone(&self.global), encoder, groups: Vec::new() };
        self.check(error)?;
        Ok(commands)
    }

    fn copy(
        &self,
        commands: &mut Commands,
        from: (&Buffer, usize),
        to: (&Buffer, usize),
        bytes: usize,
    ) -> Result<(), Error> {
        let copied = self.global.command_encoder_copy_buffer_to_buffer(
            commands.encoder,
            from.0.id,
            from.1 as u64,
            to.0.id,
            to.1 as u64,
            Some(bytes as u64),
        );
        copied.map_err(|error| self.failed(&error, 0))
    }

    fn launch(
        &self,
        commands: &mut Commands,
        program: &Program,
        buffers: &[&Buffer],
        parameters: &[u32],
        invocations: usize,
    ) -> Result<(), Error> {
        let entry = |(number, buffer): (usize, &&Buffer)| BindGroupEntry {
            binding: number as u32,
            resource: BindingResource::Buffer(BufferBinding { buffer: buffer.id, offset: 0, size: None }),
        };
        let entries: Vec<_> = buffers.iter().enumerate().map(entry).collect();
        let descriptor =
            BindGroupDescriptor { label: None, layout: program.layout, entries: Cow::Owned(entries) };
        let (bound, error) = self.global.device_create_bind_group(self.device, &descriptor, None);
        commands.groups.push(bound);
        self.check(error)?;
        let groups = u32::try_from(invocations.div_ceil(program.group as usize)).unwrap_or(u32::MAX).max(1);
        let rows = groups.div_ceil(self.limits.groups);
        let descriptor = ComputePassDescriptor { label: None, timestamp_writes: None };
        let (mut pass, error) = self.global.command_encoder_begin_compute_pass(commands.encoder, &descriptor);
        self.check(error)?;
        let record = || {
            self.global.compute_pass_set_pipeline(&mut pass, program.pipeline)?;
            self.global.compute_pass_set_bind_group(&mut pass, 0, Some(bound), &[])?;
            if !parameters.is_empty() {
                self.global.compute_pass_set_immediates(&mut pass, 0, bytemuck::cast_slice(parameters))?;
            }
            self.global.compute_pass_dispatch_workgroups(&mut pass, groups.div_ceil(rows), rows, 1)
        };
        let recorded: Result<(), wgpu_core::command::PassStateError> = { record }();
        recorded.map_err(|error| self.failed(&error, 0))?;
        self.global.compute_pass_end(&mut pass).map_err(|error| self.failed(&error, 0))
    }

    fn submit(&self, commands: Commands, lent: &mut [&mut Buffer]) -> Result<Fence, Error> {
        for buffer in lent.iter_mut() {
            if buffer.mapped.take().is_some() {
                self.global.buffer_unmap(buffer.id).map_err(|error| self.failed(&error, 0))?;
            }
        }
        let (list, error) = self.global.command_encoder_finish(commands.encoder, &Default::default(), None);
        let submitted = match error {
            None => {
                self.global.queue_submit(self.queue, &[list]).map_err(|(_, error)| self.failed(&error, 0))
            }
            Some((_, error)) => Err(self.failed(&error, 0)),
        };
        self.global.command_buffer_drop(list);
        let submission = submitted?;
        let (sender, returned) = channel();
        for buffer in lent.iter() {
            self.request(buffer, sender.clone())?;
        }
        self.watch.add(submission);
        Ok(Fence { returned, missing: lent.len() })
    }

    fn wait(&self, fence: &mut Fence, limit: Duration) -> Result<bool, Error> {
        let end = Instant::now() + limit;
        while fence.missing > 0 {
            let rest = end.saturating_duration_since(Instant::now());
            match fence.returned.recv_timeout(rest) {
                Ok(Ok(())) => fence.missing -= 1,
                Ok(Err(message)) => return Err(self.lost(message)),
                // A device that was lost may call nobody back.
                Err(_) => return self.watch.loss().map_or(Ok(false), |message| Err(self.lost(message))),
            }
        }
        Ok(true)
    }

    fn take_back(&self, buffer: &mut Buffer) -> Result<(), Error> {
        let mapped = self.global.buffer_get_mapped_range(buffer.id, 0, Some(buffer.bytes as u64));
        let (first, length) = mapped.map_err(|error| self.failed(&error, 0))?;
        assert!(length == buffer.bytes as u64, "the whole buffer is mapped");
        buffer.mapped = Some(first);
        Ok(())
    }

    fn bytes<'a>(&self, buffer: &'a Buffer) -> &'a [u8] {
        let Some(first) = buffer.mapped else { return &[] };
        // SAFETY: `take_back` got the mapping of that many bytes, which were zeroed or written before, and which lasts until
        // `submit` or `drop`: both need the buffer alone, so no reference to its bytes is left then. The card does not write
        // memory that is mapped.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), buffer.bytes) }
    }

    fn bytes_mut<'a>(&self, buffer: &'a mut Buffer) -> &'a mut [u8] {
        assert!(buffer.access == Access::Upload, "memory for the host to fill");
        let Some(first) = buffer.mapped else { return &mut [] };
        // SAFETY: the mapping lasts as in `bytes`, it was made to be written, and the buffer is borrowed alone. Writing makes
        // no byte invalid.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), buffer.bytes) }
    }
}

impl Driver {
    /// Asks for a buffer's memory once the card has done what was submitted.
    fn request(&self, buffer: &Buffer, returned: Sender<Result<(), String>>) -> Result<(), Error> {
        let host = if buffer.access == Access::Upload { HostMap::Write } else { HostMap::Read };
        let callback = Box::new(move |result: Result<(), wgpu_core::resource::BufferAccessError>| {
            // Nobody waits any more if the session was dropped.
            let _ = returned.send(result.map_err(|error| chain(&error)));
        });
        let operation = BufferMapOperation { host, callback: Some(callback) };
        let requested = self.global.buffer_map_async(buffer.id, 0, Some(buffer.bytes as u64), operation);
        requested.map(|_| ()).map_err(|error| self.failed(&error, 0))
    }
}

fn lost(device: &str, message: String) -> Error {
    Error::Lost { device: device.to_owned(), message }
}
