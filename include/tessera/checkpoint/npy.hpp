// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/file_plan.hpp>
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/row_writer.hpp>
#include <tessera/io/npy_header.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera { inline namespace v0 {

/// Writes each tensor of a model to FOLDER/NAME.npy, for numpy.load: whole tables, by all ranks,
/// whatever the layout. Collective. The folder must not exist; it appears when it is complete.
/// bfloat16, which NumPy lacks, is two raw bytes (dtype V2). Numbers are not written.
template <Communicator<detail::kCheckpointCollectives> Comm>
void export_npy(Comm& communicator, const std::filesystem::path& folder,
                const CheckpointContents& model) {
  const CheckpointContents contents = model.for_saving(communicator.rank(), [&](std::int64_t rows) {
    return detail::gather_one(communicator, rows);
  });
  const detail::FilePlan plan = detail::FilePlan::npy(contents.tensors());
  std::filesystem::path partial = folder.has_filename() ? folder : folder.parent_path();
  partial += ".partial";
  detail::RowWriter writer(partial, contents.tensors(), plan);
  std::optional<FolderLock> lock;
  detail::on_all_ranks(communicator, [&] {
    if (communicator.rank() != 0) return;
    if (partial.has_parent_path()) std::filesystem::create_directories(partial.parent_path());
    lock.emplace(detail::begin_folder("export_npy", folder, partial));
    for (std::size_t f = 0; f < plan.files.size(); ++f) {
      detail::File(partial / plan.files[f].name, detail::File::Mode::create)
          .reserve(plan.files[f].bytes);
      writer.write_header(f);
    }
  });
  detail::on_all_ranks(communicator, [&] {
    contents.flush();
    for (const detail::CheckpointRows& rows : contents.rows())
      writer.write(rows, detail::LiveRows{});
    writer.sync();
  });
  detail::on_all_ranks(communicator, [&] {
    if (communicator.rank() != 0) return;
    detail::require_new("export_npy", folder);  // it would be replaced
    detail::replace_folder(partial, folder);
  });
}

/// Reads FOLDER/NAME.npy for each tensor of a model that has such a file, of float,
/// half or bfloat16, under any layout. Collective. The model is touched when all headers and sizes are
/// right. Returns how many files were read. Throws DataError on all ranks.
template <Communicator<detail::kCheckpointCollectives> Comm>
int import_npy(Comm& communicator, const std::filesystem::path& folder,
               const CheckpointContents& model) {
  int found = 0;
  std::vector<detail::NpyHeader> headers(model.tensors().size());
  std::vector<std::filesystem::path> paths(model.tensors().size());
  detail::on_all_ranks(communicator, [&] {
    std::set<std::filesystem::path> used;
    for (std::size_t t = 0; t < paths.size(); ++t) {
      const detail::TensorSpec& tensor = model.tensors()[t];
      const std::filesystem::path path = folder / (detail::plain_file_name(tensor.name) + ".npy");
      if (model.ragged(t) || !std::filesystem::exists(path)) continue;
      const detail::File file(path, detail::File::Mode::read);
      std::vector<std::byte> begin(
          static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), 1 << 16)));
      file.read_at(0, begin);
      headers[t] = detail::parse_npy_header(begin, file.size(), file.name());
      require<DataError>(
          headers[t].shape == tensor.shape && detail::convertible(headers[t].type, tensor.type),
          "file '{}' is {} {}, '{}' in the model {} {}", file.name(),
          detail::tensor_type_name(headers[t].type), detail::shape_text(headers[t].shape),
          tensor.name, detail::tensor_type_name(tensor.type), detail::shape_text(tensor.shape));
      require<DataError>(used.insert(path).second,
                         "import_npy: two tensors of the model would be the file '{}'",
                         path.string());
      paths[t] = path;
      ++found;
    }
    require<DataError>(found > 0, "import_npy: '{}' has no file for any tensor of the model",
                       folder.string());
  });
  detail::on_all_ranks(communicator, [&] {
    model.flush_to_write();
    std::vector<std::byte> block, copied;
    for (const detail::CheckpointRows& rows : model.rows())
      for (const detail::CheckpointRows::Part& part : rows.parts) {
        const std::size_t t = static_cast<std::size_t>(part.tensor);
        if (paths[t].empty()) continue;
        const detail::TensorSpec& tensor = model.tensors()[t];
        const detail::StoredTensor stored{tensor.name, headers[t].type, tensor.shape};
        const std::int64_t row_bytes = stored.row_bytes(),
                           step = std::max<std::int64_t>(
                               1, (1 << 20) / std::max<std::int64_t>(row_bytes, 1));
        const detail::File file(paths[t], detail::File::Mode::read);
        detail::WritableRows to(rows, part, tensor.type, copied);
        for (std::int64_t first = 0; first < rows.rows; first += step) {
          const std::int64_t count = std::min(step, rows.rows - first);
          block.resize(static_cast<std::size_t>(count * row_bytes));
          file.read_at(headers[t].data_offset +
                           static_cast<std::uint64_t>((rows.row_begin + first) * row_bytes),
                       block);
          const std::int64_t skipped =
              part.column_begin * static_cast<std::int64_t>(detail::tensor_type_size(stored.type));
          for (std::int64_t r = 0; r < count; ++r)
            detail::convert_elements(block.data() + r * row_bytes + skipped, stored.type,
                                     to(first + r), tensor.type, part.columns);
        }
        to.put_back();
      }
  });
  return found;
}

}}  // namespace tessera::v0
