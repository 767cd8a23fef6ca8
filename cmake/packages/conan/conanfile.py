# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Tessera for Conan 2, from the checkout that this recipe is in: conan create cmake/packages/conan

Programs find the package's own tesseraConfig.cmake, so that its components and functions are the same as everywhere. oneDNN and NCCL
come from the machine.
"""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain
from conan.tools.files import copy, load

required_conan_version = ">=2.0"
COMPONENTS = {"dense": "dnnl", "data": "yaml-cpp", "mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL", "uring": "liburing"}  # and what CMake finds for it


class TesseraConan(ConanFile):
    name = "tessera"
    description = "Sharded embeddings and interactions for recommender trainers"
    license = "Apache-2.0"
    topics = ("embeddings", "recommender", "cuda", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {component: [True, False] for component in COMPONENTS}
    default_options = {component: False for component in COMPONENTS}
    no_copy_source = True

    @property
    def _checkout(self):
        return os.path.join(self.recipe_folder, "..", "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._checkout, "include", "tessera", "version.hpp"))
        self.version = ".".join(re.findall(r"#define TESSERA_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "cmake/*", "examples/tessera_plan*", "examples/support/*"):
            copy(self, pattern, self._checkout, self.export_sources_folder)

    def requirements(self):
        self.requires("fmt/[>=9]", transitive_headers=True, transitive_libs=True)
        if self.options.data:
            self.requires("yaml-cpp/[>=0.7]", transitive_headers=True, transitive_libs=True)
            self.requires("zlib/[>=1.2.11]", transitive_headers=True, transitive_libs=True)
            self.requires("zstd/[>=1.5]", transitive_headers=True, transitive_libs=True)
        if self.options.mpi:
            self.requires("openmpi/[>=4.1]", transitive_headers=True, transitive_libs=True)
        if self.options.gloo:
            self.requires("boost/[>=1.74]", transitive_headers=True, transitive_libs=True)
            self.requires("openssl/[>=3]", transitive_headers=True, transitive_libs=True)
        if self.options.uring:
            self.requires("liburing/[>=2.3]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"TESSERA_BUILD_{option}"] = False
        for component, package in COMPONENTS.items():
            toolchain.cache_variables[f"CMAKE_DISABLE_FIND_PACKAGE_{package}"] = not self.options.get_safe(component)
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_id(self):
        # The components that are there are part of a package, the compiler is not.
        del self.info.settings.compiler
        del self.info.settings.build_type
        del self.info.settings.arch

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "tessera")]
        self.cpp_info.set_property("cmake_find_mode", "none")
